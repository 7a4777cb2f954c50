// Any ops on whole images, then the input of a model: one launch from decoded images to the network.
#include "inputs.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, 2)
inputs(const Picture* pictures, const Chain* chains, const Task* tasks, const byte* sources,
       byte* targets, byte* scratches, const Hole* holes, const void* table, void* out, int height,
       int width, int planar, int word_bytes) {
    __shared__ Shared shared;
    __shared__ unsigned words[3 * 256];
    make_inputs<false>({pictures, chains, tasks, sources, targets, scratches},
                       {holes, table, out, height, width, planar, word_bytes}, shared, words);
}
