// Any mix of ops: block i takes picture i through its whole chain, so that one launch serves a batch
// in which every image has another policy, however many ops the bank or a policy has.
#include "blocks.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, 2)
augment(const Picture* pictures, const Task* tasks) {
    __shared__ Shared shared;
    const Picture& picture = pictures[blockIdx.x];
    Job job = only_job(picture, tasks);
    if (picture.count == 0) copy(job);
    for (int i = 0; i < picture.count; ++i) {
        // The stages take turns so that the last one writes the target.
        job.out = (picture.count - i) % 2 ? picture.target : picture.scratch;
        run(job, shared);
        // The next stage reads what other threads have written here, and reuses `shared`.
        __syncthreads();
        job.in = job.out;
        job.pitch = 3 * picture.width;
        ++job.task;
    }
}
