"""Options of other libraries that are no option here: what stands in their place.

The words are those of Hugging Face's TrainingArguments and example programs, nanoGPT and fairseq,
without dashes and underscores.
"""

from __future__ import annotations

# Options that are keys of a recipe here.
KEYS = {
    **dict.fromkeys(
        ("nlayer", "nlayers", "numlayers", "numhiddenlayers", "layers", "encoderlayers"),
        "shape.layers=N",
    ),
    **dict.fromkeys(("decoderlayers", "numdecoderlayers"), "shape.decoder_layers=N"),
    **dict.fromkeys(
        ("nhead", "nheads", "numheads", "heads", "numattentionheads", "encoderattentionheads"),
        "shape.heads=N",
    ),
    "decoderattentionheads": "shape.decoder_heads=N",
    **dict.fromkeys(("numkeyvalueheads", "nkvhead"), "shape.kv_heads=N"),
    **dict.fromkeys(
        ("nembd", "hiddensize", "dmodel", "embeddim", "encoderembeddim", "width"), "shape.width=N"
    ),
    **dict.fromkeys(
        ("intermediatesize", "dff", "ninner", "encoderffndim", "encoderffnembeddim", "ffnsize"),
        "shape.ffn_size=N",
    ),
    **dict.fromkeys(("decoderffndim", "decoderffnembeddim"), "shape.decoder_ffn_size=N"),
    **dict.fromkeys(
        ("npositions", "nctx", "maxpositionembeddings", "maxpositions", "context",
         "maxsourcepositions", "maxtargetpositions"),
        "shape.context=N",
    ),
    **dict.fromkeys(("encodernormalizebefore", "decodernormalizebefore"), "shape.norm=pre"),
    **dict.fromkeys(
        ("dropout", "hiddendropoutprob", "residpdrop", "dropoutrate"), "shape.dropout=X"
    ),
    **dict.fromkeys(
        ("attentiondropout", "attnpdrop", "attentionprobsdropoutprob"),
        "shape.dropout_attention=X",
    ),
    **dict.fromkeys(("activationdropout", "reludropout"), "shape.dropout_hidden=X"),
    "embdpdrop": "shape.dropout_embedding=X",
    **dict.fromkeys(("activationfn", "hiddenact", "activationfunction"), "shape.activation=NAME"),
    **dict.fromkeys(
        ("tiewordembeddings", "shareallembeddings", "sharedecoderinputoutputembed"),
        "shape.tied=true|false",
    ),
    **dict.fromkeys(
        ("adambeta1", "adambeta2", "beta1", "beta2", "adambetas"), "optimizer.betas=[X,Y]"
    ),
    **dict.fromkeys(("adamepsilon", "adameps"), "optimizer.eps=X"),
    **dict.fromkeys(("freezelayers", "freezeencoder"), "optimizer.freeze_layers=N"),
    **dict.fromkeys(("labelsmoothing", "labelsmoothingfactor"), "objective.smoothing=X"),
    **dict.fromkeys(("maskprob", "mlmprobability"), "objective.share=X"),
    **dict.fromkeys(("noisedensity", "maskratio"), "objective.density=X"),
    **dict.fromkeys(("meannoisespanlength", "poissonlambda"), "objective.mean=X"),
    "docstride": "objective.stride=N",
    "maxanswerlength": "objective.answer=N",
    "nullscorediffthreshold": "objective.tau=X",
    "wholewordmask": "objective.whole_words=true",
    "neftunenoisealpha": "robust.neftune=X",
    "encoderlayerdrop": "robust.drop_path=X",
    **dict.fromkeys(("minlr", "stopminlr", "lrmin"), "schedule.min_lr_ratio=X"),
    "lrdecayiters": "schedule.until=N",
    **dict.fromkeys(
        ("decayratio", "warmdownratio", "cooldownfraction"), "schedule.decay_fraction=X"
    ),
    **dict.fromkeys(
        ("metricforbestmodel", "loadbestmodelatend", "bestcheckpointmetric"),
        "validation.best=loss|metric",
    ),
    **dict.fromkeys(
        ("compile", "torchcompile", "torchcompilebackend", "torchcompilemode"),
        "engine.compile=yes|no",
    ),
    **dict.fromkeys(
        ("gradientcheckpointing", "checkpointactivations"), "engine.checkpointing=true"
    ),
    **dict.fromkeys(("fsdp", "fsdpconfig", "deepspeed"), "engine.parallel=fsdp"),
    **dict.fromkeys(("ddpbackend", "ddptimeout"), "engine.parallel=ddp|fsdp|local-sgd"),
    **dict.fromkeys(
        ("evalsteps", "evalinterval", "evalstrategy", "evaluationstrategy", "validateinterval",
         "validateintervalupdates"),
        "validation.every=N",
    ),
    **dict.fromkeys(("evaliters", "maxevalsamples"), "validation.samples=N"),
    **dict.fromkeys(
        ("savesteps", "savestrategy", "saveinterval", "saveintervalupdates"), "checkpoint.every=N"
    ),
    **dict.fromkeys(
        ("savetotallimit", "keepintervalupdates", "keeplastepochs"), "checkpoint.keep=N"
    ),
    "validationsplitpercentage": "examples.valid_fraction=X",
    "sourceprefix": "examples.prefix=TEXT",
}  # fmt: skip

# The objectives that have a key, where others have it not.
OBJECTIVES_WITH = {
    "smoothing": "pairs",
    "share": "masked, sentences",
    "whole_words": "masked, sentences",
    "density": "span",
    "stride": "answer",
    "answer": "answer",
    "tau": "answer",
    "mean": "span",
}

# What the usage line of a command calls the words that stand without an option, by what others
# give as one; the first that the command has is the answer.
ARGUMENTS = {
    **dict.fromkeys(
        ("modelnameorpath", "model", "modelname", "modelpath", "modeltype", "arch", "pretrained",
         "initfrom", "checkpoint", "ckpt", "restorefile", "finetunefrommodel", "path"),
        "MODEL TEACHER RUN PATH",
    ),
    **dict.fromkeys(
        ("prompt", "prompts", "start", "text", "texts", "input", "inputs", "inputtext", "question"),
        "PROMPT TEXT",
    ),
    **dict.fromkeys(
        ("data", "datasetname", "dataset", "datadir", "datapath", "trainfile", "traindata",
         "validationfile", "testfile", "trainpref", "inputfile", "tasks"),
        "DATA SOURCE",
    ),
}  # fmt: skip

# What is not there, and what to do instead; a command before the colon says it for itself.
VOCABULARY = "the vocabulary is made with the data: regard prepare SOURCE --vocab-size N"
SAVED = (
    "the directory of a run holds the model of the best validation, checkpoints and the recipe; "
    "leave it out"
)
LOGGED = (
    "every step is written to RUN/metrics.jsonl, and RUN/report.html draws it; --log tensorboard, "
    "wandb, mlflow or trackio writes it for these, too"
)
COMMANDS = (
    "a command does one thing: 'regard train' learns from text, 'regard finetune' from examples, "
    "'regard evaluate' measures, 'regard predict' answers"
)
LABELS = "the labels are read from the data, and their number with them; leave it out"
PROCESSES = "start several processes with torchrun --nproc-per-node N -m regard train …"
HUB = "no command sends anything but one: regard push RUN NAME, after the training"
FIELDS = "name a field of the records: --field ROLE=NAME, such as --field text=review"
RANDOM = "--seed decides every random choice, and a run is exactly repeatable; leave it out"
LOADING = "how data are read and made into batches needs no option; leave it out"
MEASURED = "'regard evaluate' measures a model on new data, and writes the answers; leave it out"
OPTIMIZER = "the settings have a key each: regard recipes --keys optimizer (or schedule)"
PRINTED = "answers are printed: add --jsonl and write '> FILE'"
BEGINNINGS = {  # of words that all mean the same
    "dataloader": LOADING,
    "log": LOGGED,
    "tensorboard": LOGGED,
    "wandb": LOGGED,
    "trackio": LOGGED,
    "hub": HUB,
    "save": SAVED,
    "eval": MEASURED,
    "ddp": PROCESSES,
    "distributed": PROCESSES,
    "accelerator": PROCESSES,
    "parallelism": PROCESSES,
    "averagetokens": PROCESSES,
}
INSTEAD = {
    **dict.fromkeys(("vocabsize", "vocab", "nvocab"), VOCABULARY),
    "version2withnegative": "questions without an answer are learned where the data have some",
    **dict.fromkeys(("tokenizername", "usefasttokenizer", "bpe"),
                    "the tokenizer comes with the data (regard prepare --tokenizer) or the model"),
    "mlm": "say --objective masked; a bert learns so without it",
    "criterion": "what is learned is --objective NAME; smoothing is objective.smoothing=X (pairs)",
    "samplebreakmode": "a key says how text is cut: objective.documents=packed|separate",
    **dict.fromkeys(("numlabels", "labellist", "numclasses", "labelnames"), LABELS),
    **dict.fromkeys(
        ("reportto", "runname", "project", "includenuminputtokensseen", "skipmemorymetrics"),
        LOGGED,
    ),
    **dict.fromkeys(("disabletqdm", "nprogressbar"), "say --quiet to print nothing on the way"),
    **dict.fromkeys(
        ("greaterisbetter",
         "maximizebestcheckpointmetric", "alwayssavecheckpoint", "noepochcheckpoints",
         "nolastcheckpoints", "enablejitcheckpoint", "restorecallbackstatesfromcheckpoint"),
        SAVED,
    ),
    "prepare:overwriteoutputdir": "say --force to replace the data",
    "prepare:overwritecache": "say --force to replace the data",
    "prepare:tokenizername": "say --tokenizer KIND or --tokenizer DIR",
    "prepare:validationsplitpercentage": "say --valid-fraction X, such as 0.05",
    **dict.fromkeys(("evaluate:maxevalsamples", "evaluate:maxpredictsamples"), "say --limit N"),
    **dict.fromkeys(("evaluate:metric", "evaluate:metrics", "finetune:metric"),
                    "the task decides the metrics, and all of them are reported; leave it out"),
    **dict.fromkeys(("finetune:dev", "finetune:devfile", "finetune:eval"), "say --valid FILE"),
    "finetune:train": "say --data FILE",
    **dict.fromkeys(("compare:maxsteps", "compare:steps", "compare:minutes", "compare:epochs"),
                    "say --budget: a time (10m), tokens (2Mtok) or operations (0.3Pflop)"),
    **dict.fromkeys(("predict:earlystopping", "generate:earlystopping"),
                    "a beam search ends by its own rule (generate --beam-stopping NAME); leave it "
                    "out"),
    "overwriteoutputdir": "no run is overwritten; give --out another directory",
    **dict.fromkeys(("dotrain", "doeval", "dopredict"), COMMANDS),
    **dict.fromkeys(("localrank", "nproc", "distributedworldsize", "backend"), PROCESSES),
    **dict.fromkeys(
        ("pushtohub", "token", "useauthtoken"), HUB,
    ),
    **dict.fromkeys(
        ("textcolumnname", "labelcolumnname", "textcolumn", "summarycolumn", "labelcolumn"), FIELDS
    ),
    **dict.fromkeys(("sourcelang", "targetlang"),
                    "the data say which is translated: --field source=en --field target=de, or two "
                    "files, train.en,train.de"),
    **dict.fromkeys(("optimargs", "optimtargetmodules", "lrschedulerkwargs"), OPTIMIZER),
    **dict.fromkeys(("datasetconfigname", "modelrevision"),
                    "a name of the hub carries it: hub:NAME@CONFIGURATION#SPLIT (data alone)"),
    **dict.fromkeys(("keeplinebreaks", "linebyline"),
                    "'regard prepare' says what ends a document: --split-by blank, line or file"),
    **dict.fromkeys(
        ("labelalltokens", "returnentitylevelmetrics", "ignorepadtokenforloss",
         "ignoremismatchedsizes", "forcedbostoken", "nbestsize"),
        "the task does it as its paper did; leave it out",
    ),
    "configoverrides": "give the fields as keys: shape.layers=6 shape.width=256",
    **dict.fromkeys(("numworkers", "workers"), LOADING),
    **dict.fromkeys(("resetoptimizer", "resetdataloader", "resetlrscheduler", "resetmeters"),
                    "a new run (MODEL is the old one) begins with a new optimizer; leave it out"),
    "finetune:testfile": "test the run when it has learned: regard evaluate RUN FILE",
    "debug": "a run that meets a number that is no number stops and says where; leave it out",
    "taskname": "say --task T, such as classify, and give the data as a file",
    **dict.fromkeys(("fulldeterminism", "dataseed", "seedoffset"), RANDOM),
    **dict.fromkeys(
        ("preprocessingnumworkers", "overwritecache", "streaming", "lowcpumemusage",
         "groupbylength", "removeunusedcolumns", "requiredbatchsizemultiple", "datasetimpl",
         "skipinvalidsizeinputsvalidtest", "trainsamplingstrategy", "lengthcolumnname",
         "sortishsampler", "ignoredataskip"),
        LOADING,
    ),
    **dict.fromkeys(
        ("predictwithgenerate", "predictionlossonly", "includeformetrics", "batchevalmetrics",
         "generationmaxlength", "generationnumbeams", "generationconfig"),
        MEASURED,
    ),
    **dict.fromkeys(
        ("padtomaxlength", "padding", "doclowercase", "dolowercase"),
        "texts are padded as their batch needs, and the tokenizer knows its case (regard prepare "
        "--lower); leave it out",
    ),
    **dict.fromkeys(
        ("maxtrainsamples", "maxpredictsamples"),
        "give a shorter file, or learn less of it: --steps N or --max-tokens N",
    ),
    **dict.fromkeys(
        ("autofindbatchsize",), "without --batch-size a run takes what fits; leave it out"
    ),
    **dict.fromkeys(
        ("tf32", "usecache", "flashattention", "memoryefficientfp16", "attnimplementation",
         "useligerkernel", "ligerkernelconfig", "torchemptycachesteps",
         "gradientcheckpointingkwargs", "bf16fulleval", "fp16fulleval"),
        "the fastest way that this machine has is taken; leave it out",
    ),
    **dict.fromkeys(
        ("bias",), "the weights with a bias are those of the model's paper; it cannot be changed"
    ),
    **dict.fromkeys(("loadin8bit", "loadin4bit"), "make it smaller first: regard quantize MODEL"),
    **dict.fromkeys(("lora", "usepeft", "lorar", "loraalpha"),
                    "finetune has --lora rank=8,alpha=16; a recipe has extensions.lora.*"),
    "cachedir": "names of the hub are kept where the hub's own library keeps them (HF_HOME)",
    "valmaxtargetlength": MEASURED,
    "userdir": "nothing of others is executed; CONTRIBUTING.md says how a model or a task is added",
    "predict:out": PRINTED,
    "predict:outputdir": PRINTED,
    "predict:outputfile": PRINTED,
    "generate:out": "texts are printed: write '> FILE', with --json as one object",
    "generate:outputfile": "texts are printed: write '> FILE', with --json as one object",
    "generate:numpredict": "say --max-new-tokens N",
    "train:task": "'regard train' learns from text; a task is learned by 'regard finetune'",
    **dict.fromkeys(
        ("train:valid", "train:validationfile", "train:validationsplitpercentage",
         "train:validsubset", "train:trainsubset"),
        "'regard prepare' divides the text (--valid-fraction X); leave it out",
    ),
    "finetune:objective": "the task decides what is learned: --task T",
    "finetune:size": "a model that is there keeps its size; 'regard train --size' makes one",
}  # fmt: skip
