// The CPU target: the same pixels.h, a row at a time so that the compiler vectorises, the images of
// a batch shared out among threads.
#include <algorithm>
#include <atomic>
#include <memory>

#include "cpu_filters.h"
#include "cpu_places.h"
#include "cpu_threads.h"
#include "cpu_tones.h"

namespace {

void run(const Job& job) {
    int number = job.task.ints[0];
    float factor = job.task.factor;
    switch (job.task.primitive) {
        case PRIMITIVE_COPY: return copy(job);
        case PRIMITIVE_GATHER: return gather(job);
        case PRIMITIVE_SOLARIZE:
            if (number > 255) return copy(job);
            return map_bytes(job, [t = byte(number)](byte v) { return solarize_pixel(v, t); });
        case PRIMITIVE_SOLARIZE_ADD:
            return map_bytes(job, [a = byte(number)](byte v) { return solarize_add_pixel(v, a); });
        case PRIMITIVE_POSTERIZE:
            return map_bytes(job, [=](byte v) { return posterize_pixel(v, number); });
        case PRIMITIVE_AUTOCONTRAST: return autocontrast(job);
        case PRIMITIVE_EQUALIZE: return equalize(job);
        case PRIMITIVE_BRIGHTNESS:
            return map_bytes(job, [=](byte v) { return blend_pixel(0, v, factor); });
        case PRIMITIVE_CONTRAST: return contrast(job);
        case PRIMITIVE_COLOR: return color(job);
        case PRIMITIVE_SHARPNESS:
            return smooth_rows(job, [=](byte d, byte v) { return blend_pixel(d, v, factor); });
        case PRIMITIVE_SMOOTH: return smooth_rows(job, [](byte d, byte) { return d; });
        case PRIMITIVE_BLUR: return blur(job);
        case PRIMITIVE_CUTOUT: return cutout(job);
    }
}

// An op on a rectangle of `image`: into the spare memory, then back to its place.
void run_in_place(const Task& task, byte* image, int pitch, byte* spare) {
    byte* place = image + std::ptrdiff_t(task.top) * pitch + 3 * task.left;
    int row = 3 * task.width;
    run({task, {place, pitch}, spare, row, task.height, task.width});
    copy({task, {spare, row}, place, pitch, task.height, task.width});
}

void run_chain(const Picture& picture, const Chain& chain, const Batch& batch, byte* scratch) {
    static const Task nothing = {};
    const int row = 3 * picture.width, height = picture.height, width = picture.width;
    Source in{batch.sources + picture.source, picture.source_pitch};
    byte* target = batch.targets + picture.target;
    if (chain.count == 0) copy({nothing, in, target, row, height, width});
    byte* image = nullptr;  // the latest state, once it is no longer the source
    for (int i = 0, whole = chain.whole; i < chain.count; ++i) {
        const Task& task = batch.tasks[chain.first + i];
        if (task.width) {
            run_in_place(task, image, row, image == target ? scratch : target);
        } else {
            // These take turns so that the last one writes the target.
            image = whole-- % 2 ? target : scratch;
            run({task, in, image, row, height, width});
            in = {image, row};
        }
    }
}

struct Images : Work {  // of one call; whoever comes takes the next
    Batch batch;
    std::int64_t count, scratch_bytes = 0;
    std::atomic<std::int64_t> next{0}, done{0};

    Images(const Batch& batch, std::int64_t count) : batch(batch), count(count) {}

    void take_part() override {
        std::unique_ptr<byte[]> scratch;
        for (std::int64_t i; (i = next++) < count; ++done) {
            if (scratch_bytes && !scratch) scratch.reset(new byte[scratch_bytes]);
            run_chain(batch.pictures[i], batch.chains[i], batch, scratch.get());
        }
    }
};

}  // namespace

// The scratch memory is each thread's own: one image of it serves them all in turn.
extern "C" void ddas_augment(const Picture* pictures, const Chain* chains, const Task* tasks,
                             const byte* sources, byte* targets, std::int64_t count, int threads) {
    // Waking a helper costs some microseconds: less work than this is done sooner alone.
    constexpr std::int64_t bytes_worth_a_helper = 1 << 18;
    auto images = std::make_shared<Images>(
        Batch{pictures, chains, tasks, sources, targets, nullptr}, count);
    std::int64_t all_bytes = 0;
    for (std::int64_t i = 0; i < count; ++i) {
        std::int64_t bytes = 3 * std::int64_t(pictures[i].height) * pictures[i].width;
        all_bytes += bytes;
        if (chains[i].count > 1) images->scratch_bytes = std::max(images->scratch_bytes, bytes);
    }
    std::int64_t helpers = std::min({threads - 1l, count - 1, all_bytes / bytes_worth_a_helper});
    if (helpers > 0) Helpers::ours().call(images, helpers);
    images->take_part();
    while (images->done < count) std::this_thread::yield();  // for those that helpers have begun
}
