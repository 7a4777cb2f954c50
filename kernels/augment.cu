// Any ops on whole images: one launch for a batch in which every image may have a different policy.
#include "chain.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, 2)
augment(const Picture* pictures, const Chain* chains, const Task* tasks, const byte* sources,
        byte* targets, byte* scratches) {
    __shared__ Shared shared;
    run_chain<false, true>({pictures, chains, tasks, sources, targets, scratches}, shared);
}
