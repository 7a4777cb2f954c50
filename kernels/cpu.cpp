// The CPU target: the arithmetic of pixels.h in loops over rows, which the compiler vectorises; the
// images of a batch are distributed over threads.
#include <algorithm>
#include <atomic>
#include <exception>
#include <memory>
#include <new>

#include "cpu_filters.h"
#include "cpu_inputs.h"
#include "cpu_places.h"
#include "cpu_threads.h"
#include "cpu_tones.h"

namespace {

void run(const Job& job) {
    // A copy: the compiler cannot know that writing a pixel leaves the task unchanged.
    const Numbers numbers = job.task.numbers;
    switch (job.task.primitive) {
        case PRIMITIVE_COPY: return copy(job);
        case PRIMITIVE_GATHER: return gather(job);
        case PRIMITIVE_AUTOCONTRAST: return autocontrast(job);
        case PRIMITIVE_EQUALIZE: return equalize(job);
        case PRIMITIVE_CONTRAST: return contrast(job);
        case PRIMITIVE_COLOR: return color(job);
        case PRIMITIVE_SHARPNESS:
            return smooth_rows(
                job, [=](byte d, byte v) { return blend_pixel(d, v, numbers.factor); });
        case PRIMITIVE_SMOOTH: return smooth_rows(job, [](byte d, byte) { return d; });
        case PRIMITIVE_BLUR: return blur(job);
        case PRIMITIVE_CUTOUT: return cutout(job);
        case PRIMITIVE_WARMTH: return warmth(job);
#define POINT(name, function, map) \
    case PRIMITIVE_##name: return map(job, [=](byte v) { return function(v, numbers); });
        POINT_PRIMITIVES(POINT)
#undef POINT
    }
}

// Runs an op on a rectangle of `image`: into the spare memory, then copies the result back.
void run_in_place(const Task& task, byte* image, int pitch, byte* spare) {
    byte* place = image + std::ptrdiff_t(task.top) * pitch + 3 * task.left;
    int row = 3 * task.width;
    run({task, {place, pitch}, spare, row, task.height, task.width});
    copy({task, {spare, row}, place, pitch, task.height, task.width});
}

// Scratch memory of a thread, reused for each of its images.
class Scratch {
public:
    byte* of(std::int64_t bytes) {
        if (size < bytes) {
            memory.reset(new byte[bytes]);
            size = bytes;
        }
        return memory.get();
    }

private:
    std::unique_ptr<byte[]> memory;
    std::int64_t size = 0;
};

// Runs a chain and returns its result. `memory(two)` gives the places of the target and, if `two`, of
// scratch memory. The result of a chain of nothing is the source itself unless it `must_copy`.
template <class Memory>
Source run_chain(const Picture& picture, const Chain& chain, const Batch& batch, bool must_copy,
                 Memory memory) {
    const Task* task = batch.tasks + chain.first;
    const Task* const end = task + chain.count;
    const int row = 3 * picture.width;
    Passes passes = passes_of(task, chain.count);
    Source in{batch.sources + picture.source, picture.source_pitch};
    if (passes.copy_first && !passes.parts && !must_copy) return in;
    const auto [target, scratch] = memory(passes.count > 1 || passes.parts);
    byte* image = nullptr;  // the result of the last pass
    auto pass = [&](const Task& task) {
        // Passes alternate between target and scratch; the last one writes the target.
        image = passes.count-- % 2 ? target : scratch;
        run({task, in, image, row, picture.height, picture.width});
        in = {image, row};
    };
    static const Task copying = {};
    static_assert(PRIMITIVE_COPY == 0, "a task of zeros is a copy");
    if (passes.copy_first) pass(copying);
    for (; task < end; ++task) {
        if (task->primitive == PRIMITIVE_COPY) continue;
        if (task->width)
            run_in_place(*task, image, row, image == target ? scratch : target);
        else
            pass(*task);
    }
    return in;
}

struct Places {
    byte *target, *scratch;
};

struct Images : Work {  // of one call; each thread takes the next image
    Batch batch;
    const Inputs* inputs;  // or null: the images themselves are the result
    std::int64_t count;
    std::atomic<std::int64_t> next{0}, done{0};
    std::atomic<bool> no_memory{false};

    Images(const Batch& batch, const Inputs* inputs, std::int64_t count)
        : batch(batch), inputs(inputs), count(count) {}

    void run_image(std::int64_t i, Scratch& memory) const {
        const Picture& picture = batch.pictures[i];
        const std::int64_t bytes = 3 * std::int64_t(picture.height) * picture.width;
        auto places = [&](bool two) -> Places {
            if (!inputs) return {batch.targets + picture.target, two ? memory.of(bytes) : nullptr};
            byte* both = memory.of(2 * bytes);
            return {both, both + bytes};
        };
        Source result = run_chain(picture, batch.chains[i], batch, !inputs, places);
        if (inputs) write_inputs(result, picture, *inputs, i);
    }

    void run_part() override {
        Scratch memory;
        for (std::int64_t i; (i = next++) < count; ++done) {
            try {
                run_image(i, memory);
            } catch (const std::bad_alloc&) {  // must not leave a helper: it would end the process
                no_memory = true;
            }
        }
    }
};

// Runs all images on this thread and its helpers. Returns 0, or 1 if there was too little memory; the
// results are undefined then.
int run_all(const Batch& batch, const Inputs* inputs, std::int64_t count, int threads) {
    // Waking a helper takes some microseconds: less work than this is faster on one thread.
    constexpr std::int64_t bytes_per_helper = 1 << 18;
    std::shared_ptr<Images> images;
    try {
        images = std::make_shared<Images>(batch, inputs, count);
    } catch (const std::bad_alloc&) {
        return 1;
    }
    std::int64_t bytes = 0;
    for (std::int64_t i = 0; i < count; ++i)
        bytes += 3 * std::int64_t(batch.pictures[i].height) * batch.pictures[i].width;
    std::int64_t helpers = std::min({threads - 1l, count - 1, bytes / bytes_per_helper});
    try {
        if (helpers > 0) Helpers::ours().call(images, helpers);
    } catch (const std::exception&) {  // no memory or no thread: the caller does all the work
    }
    images->run_part();
    while (images->done < count) std::this_thread::yield();  // until helpers finish their images
    return images->no_memory ? 1 : 0;
}

}  // namespace

extern "C" int ddas_augment(const Picture* pictures, const Chain* chains, const Task* tasks,
                             const byte* sources, byte* targets, std::int64_t count, int threads) {
    return run_all({pictures, chains, tasks, sources, targets, nullptr}, nullptr, count, threads);
}

extern "C" int ddas_inputs(const Picture* pictures, const Chain* chains, const Task* tasks,
                            const byte* sources, const Hole* holes, const void* table, void* out,
                            int height, int width, int planar, int word_bytes, std::int64_t count,
                            int threads) {
    Inputs inputs{holes, table, out, height, width, planar, word_bytes};
    return run_all({pictures, chains, tasks, sources, nullptr, nullptr}, &inputs, count, threads);
}
