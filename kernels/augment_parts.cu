// Any ops on whole images and on rectangles of them, such as the boxes of objects.
#include "chain.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, 1)
augment_parts(const Picture* pictures, const Chain* chains, const Task* tasks, const byte* sources,
              byte* targets, byte* scratches) {
    __shared__ Shared shared;
    run_chain<true, true>({pictures, chains, tasks, sources, targets, scratches}, shared);
}
