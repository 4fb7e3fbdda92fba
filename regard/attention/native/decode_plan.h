// The plan of a decoder: what its sub-layers are, where their weights and memories lie. Python builds
// it (decode.py has the same structures), and the step follows it.

#pragma once

#include <cstdint>

enum MatrixKind : int64_t { FLOATS = 0, HALVES = 1, BYTES = 2, BYTES_OF_BYTES = 3, NIBBLES = 4 };
enum NormKind : int64_t { NO_NORM = 0, LAYER_NORM = 1, RMS_NORM = 2 };
enum PartKind : int64_t { SELF = 0, CROSS = 1, NETWORK = 2 };
enum CacheKind : int64_t { FLOAT_CACHE = 0, HALF_CACHE = 1, BYTE_CACHE = 2 };
enum Activation : int64_t { RELU = 0, GELU_TANH = 1, SILU = 2, GELU = 3, TANH = 4 };

struct Matrix {        // [out, in]
    const void* weight;    // of 4 bits: in blocks (groups.h)
    const float* scale;    // of each output, for bytes
    const int32_t* total;  // the sum of each row, for bytes
    const float* bias;     // may be null
    int64_t in, out, kind;
};

struct Norm {
    const float *weight, *bias;
    int64_t kind;
    double epsilon;
};

struct Part {  // a sub-layer with its residual connection
    int64_t kind, post;  // post: 1 if the norm comes after the residual sum
    Norm norm;
    Matrix first, gate, last;  // attention: the projection, none, the output
    int64_t heads, kv_heads, size;
    int64_t band;        // the newest keys that a row sees; 0: all
    int64_t rotary;      // 1: queries and keys are rotated
    int64_t activation;
    double scale;
    const float* bias;  // [heads, reach], added to the scores by distance; the last one counts on
    int64_t reach;
    const float *u, *v, *far;  // relative scores (decode_relative.h); null: none
};

struct Plan {
    const Part* parts;
    int64_t count, width;
    Matrix tokens;
    double token_scale, output_scale;
    const float* positions;    // [context, width]; may be null
    const float* frequencies;  // [size / 2] of rotary positions; may be null
    Norm norm;
    Matrix output;
};

struct Memory {  // the keys and values that an attention reads: [batch, kv_heads, columns, size]
    void *keys, *values;
    int64_t row, head;  // strides, in numbers
    int64_t kind;       // of these numbers (decode_cache.h)
};

struct Step {
    const int64_t* tokens;
    const int64_t* starts;  // the first column of each row
    int64_t batch, length;  // the columns that are filled: the new one comes after them
    const int64_t* columns;  // the new column of each row; null: all rows have `length`
    const Memory* memories;  // of each part that is an attention, in order
    const int64_t* sources;  // the columns of each row that cross-attention reads; may be null
    float* logits;           // [batch, output.out]; hidden states [batch, width] without an output
    const float* inputs;     // [batch, width]: embedded tokens; null: the plan has a table
};
