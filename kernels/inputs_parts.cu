// The same for ops on rectangles, too.
#include "inputs.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, 1)
inputs_parts(const Picture* pictures, const Chain* chains, const Task* tasks, const byte* sources,
             byte* targets, byte* scratches, const Hole* holes, const void* table, void* out,
             int height, int width, int planar, int word_bytes) {
    __shared__ Shared shared;
    __shared__ unsigned words[3 * 256];
    make_inputs<true>({pictures, chains, tasks, sources, targets, scratches},
                      {holes, table, out, height, width, planar, word_bytes}, shared, words);
}
