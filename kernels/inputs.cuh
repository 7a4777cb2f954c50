// The last pass of the kernels that write a model's input: normalise, holes, padding, layout.
#pragma once

#include "chain.cuh"

template <class Word>
PIXEL void write_words(const Job& job, const Inputs& inputs, Word* table) {
    for (int i = thread_index(); i < 3 * 256; i += BLOCK_THREADS)
        table[i] = ((const Word*)inputs.table)[i];
    __syncthreads();
    const Hole hole = inputs.holes[blockIdx.x];
    const long long pixels = (long long)inputs.height * inputs.width;
    const long long across = inputs.planar ? pixels : 1;  // from one channel to the next
    const int step = inputs.planar ? 1 : 3;               // from one pixel to the next
    Word* out = (Word*)inputs.out + blockIdx.x * 3 * pixels;
    for (int y = threadIdx.y; y < inputs.height; y += blockDim.y)
        for (int x = threadIdx.x; x < inputs.width; x += blockDim.x) {
            Word word[3] = {0, 0, 0};
            if (is_visible(x, y, job.height, job.width, hole)) {
                Rgb v = load(job.at(x, y));
                for (int c = 0; c < 3; ++c) word[c] = table[256 * c + v.value[c]];
            }
            Word* to = out + step * ((long long)y * inputs.width + x);
            for (int c = 0; c < 3; ++c) to[c * across] = word[c];
        }
}

template <bool with_parts>
PIXEL void make_inputs(const Batch& batch, const Inputs& inputs, Shared& shared, unsigned* table) {
    Job job = run_chain<with_parts, false>(batch, shared);
    if (inputs.word_bytes == 4)
        write_words(job, inputs, table);
    else
        write_words(job, inputs, (unsigned short*)table);
}
