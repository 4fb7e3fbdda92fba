"""`regard serve`: models behind HTTP, for clients of OpenAI, for curl, and for a browser.

    options.py     what the command line sets
    models.py      the served models: loaded once, unloaded when idle; what each can do
    worker.py      one thread for each model, which shares the cores with the others in turns
    generation.py  texts that are written token by token, joined in one batch (decoding/batcher.py)
    encoding.py    questions to encoders, gathered for a few milliseconds and answered together
    gate.py        what every request passes: key, size, time to arrive, shutdown, figures, errors
    openai.py (with openai_shapes.py), encoders.py, ours.py   the routes
    app.py         the application;  server.py  the process around it

Every answer is the answer of the Python call (`LoadedModel`), whatever else is in the batch.
"""
