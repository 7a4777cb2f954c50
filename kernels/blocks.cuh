// The op bank on the GPU: one block of threads per image. The arithmetic is in pixels.h.
#pragma once

#define PIXEL __device__ __forceinline__
#include "tasks.h"

// Blocks are 32 x 16 threads: a warp reads 32 adjacent pixels of a row.
#define BLOCK_THREADS 512

struct Job {  // one op on one image or rectangle: from `in` to `out`, which never overlap
    const Task* task;
    const byte* in;
    int pitch;
    byte* out;
    int out_pitch;
    int height, width;

    PIXEL const byte* at(int x, int y) const { return in + (long long)y * pitch + 3 * x; }
    PIXEL byte* to(int x, int y) const { return out + (long long)y * out_pitch + 3 * x; }
    PIXEL bool in_words() const {
        bool contiguous = pitch == 3 * width && out_pitch == 3 * width;
        return contiguous && ((unsigned long long)in | (unsigned long long)out) % 4 == 0;
    }
};

// Shared memory of a block, for ops that need statistics of the whole image.
struct Shared {
    int count[3][256];
    byte table[3][256];
    int group[3][32];  // pixels in each group of eight values
    int low[3], high[3];
    unsigned long long grey;
};

PIXEL int thread_index() { return threadIdx.y * blockDim.x + threadIdx.x; }

// Calls work(x, y) for every pixel: a grid-stride loop over the threads of the block and, in kernels
// with several blocks per image, over the blocks along y.
template <class Work>
PIXEL void for_pixels(const Job& job, Work work) {
    for (int y = blockIdx.y * blockDim.y + threadIdx.y; y < job.height; y += gridDim.y * blockDim.y)
        for (int x = threadIdx.x; x < job.width; x += blockDim.x) work(x, y);
}

// Load a whole pixel before storing: the compiler must assume that source and target overlap, so a
// load after a store waits for it.
struct Rgb {
    byte value[3];
};

PIXEL Rgb load(const byte* from) { return {{from[0], from[1], from[2]}}; }

PIXEL void store(byte* to, Rgb pixel) {
    for (int c = 0; c < 3; ++c) to[c] = pixel.value[c];
}

template <class Function>
PIXEL void map_pixel(const byte* from, byte* to, Function function) {
    Rgb v = load(from);
    for (int c = 0; c < 3; ++c) v.value[c] = function(v.value[c], c);
    store(to, v);
}

// Calls function(byte, channel) for every byte.
template <class Function>
PIXEL void map_bytes(const Job& job, Function function) {
    for_pixels(job, [&](int x, int y) { map_pixel(job.at(x, y), job.to(x, y), function); });
}

// The same with a quarter of the loads and stores, where an image is contiguous and aligned: in words
// of four bytes, of which three are four pixels. For all ops of augment.cu it would spill registers.
template <class Function>
PIXEL void map_words(const Job& job, Function function) {
    if (!job.in_words()) return map_bytes(job, function);
    const int pixels = job.height * job.width, words = pixels / 4 * 3;
    const int first = blockIdx.y * BLOCK_THREADS + thread_index();
    for (int i = 3 * first; i < words; i += 3 * gridDim.y * BLOCK_THREADS) {
        const unsigned* from = (const unsigned*)job.in + i;
        unsigned* to = (unsigned*)job.out + i;
        unsigned word[3] = {from[0], from[1], from[2]};
        for (int k = 0; k < 3; ++k) {
            unsigned mapped = 0;
            for (int b = 0; b < 4; ++b)
                mapped |= unsigned(function(byte(word[k] >> 8 * b), (4 * k + b) % 3)) << 8 * b;
            to[k] = mapped;
        }
    }
    if (first < pixels % 4) {
        long long rest = 4ll * words + 3 * first;
        map_pixel(job.in + rest, job.out + rest, function);
    }
}

PIXEL void copy(const Job& job) {
    map_words(job, [](byte v, int) { return v; });
}

// A point op. The function of pixels.h is a template argument: NVRTC does not inline a pointer.
template <byte (*function)(byte, const Numbers&), bool in_words = false>
PIXEL void point_image(const Job& job) {
    // A copy in registers: the compiler cannot know that writing a pixel leaves the task unchanged.
    const Numbers numbers = job.task->numbers;
    auto of_byte = [=](byte v, int) { return function(v, numbers); };
    if (in_words)
        map_words(job, of_byte);
    else
        map_bytes(job, of_byte);
}

PIXEL void autocontrast_image(const Job& job, Shared& shared) {
    int thread = thread_index();
    if (thread < 3) {
        shared.low[thread] = 255;
        shared.high[thread] = 0;
    }
    __syncthreads();
    int low[3] = {255, 255, 255}, high[3] = {0, 0, 0};
    for_pixels(job, [&](int x, int y) {
        Rgb v = load(job.at(x, y));
        for (int c = 0; c < 3; ++c) {
            low[c] = min(low[c], int(v.value[c]));
            high[c] = max(high[c], int(v.value[c]));
        }
    });
    for (int c = 0; c < 3; ++c) {
        atomicMin(&shared.low[c], low[c]);
        atomicMax(&shared.high[c], high[c]);
    }
    __syncthreads();
    for (int i = thread; i < 3 * 256; i += BLOCK_THREADS) {
        int c = i / 256, v = i % 256;
        shared.table[c][v] = autocontrast_entry(v, shared.low[c], shared.high[c]);
    }
    __syncthreads();
    map_bytes(job, [&](byte v, int c) { return shared.table[c][v]; });
}

PIXEL void equalize_image(const Job& job, Shared& shared) {
    int thread = thread_index();
    for (int i = thread; i < 3 * 256; i += BLOCK_THREADS) shared.count[i / 256][i % 256] = 0;
    if (thread < 3) shared.high[thread] = 0;
    __syncthreads();
    for_pixels(job, [&](int x, int y) {
        Rgb v = load(job.at(x, y));
        for (int c = 0; c < 3; ++c) atomicAdd(&shared.count[c][v.value[c]], 1);
    });
    __syncthreads();
    // Prefix sums over 256 values, one warp per channel, eight values per thread: first the totals …
    int c = thread / 32, group = thread % 32;
    if (c < 3) {
        int total = 0;
        for (int v = 8 * group; v < 8 * group + 8; ++v) {
            total += shared.count[c][v];
            if (shared.count[c][v]) atomicMax(&shared.high[c], v);
        }
        shared.group[c][group] = total;
    }
    __syncthreads();
    // … then the eight entries of each thread, added to the totals of the groups below.
    if (c < 3) {
        EqualizeStep step = equalize_step(job.height * job.width, shared.count[c][shared.high[c]]);
        int below = 0;
        for (int k = 0; k < group; ++k) below += shared.group[c][k];
        for (int v = 8 * group; v < 8 * group + 8; ++v) {
            shared.table[c][v] = equalize_entry(v, below, step);
            below += shared.count[c][v];
        }
    }
    __syncthreads();
    map_bytes(job, [&](byte v, int c) { return shared.table[c][v]; });
}

PIXEL int grey_of(Rgb v) { return grey_pixel(v.value[0], v.value[1], v.value[2]); }

PIXEL void contrast_image(const Job& job, Shared& shared) {
    if (thread_index() == 0) shared.grey = 0;
    __syncthreads();
    unsigned long long sum = 0;
    for_pixels(job, [&](int x, int y) { sum += grey_of(load(job.at(x, y))); });
    // Add up the warp first: 32 atomics on one address would run one after the other.
    for (int half = 16; half; half /= 2) sum += __shfl_down_sync(~0u, sum, half);
    if (threadIdx.x == 0) atomicAdd(&shared.grey, sum);
    __syncthreads();
    int mean = mean_grey(shared.grey, (unsigned long long)job.height * job.width);
    float factor = job.task->numbers.factor;
    map_bytes(job, [=](byte v, int) { return blend_pixel(mean, v, factor); });
}

PIXEL void color_image(const Job& job) {
    float factor = job.task->numbers.factor;
    for_pixels(job, [&](int x, int y) {
        Rgb v = load(job.at(x, y));
        int grey = grey_of(v);
        for (int c = 0; c < 3; ++c) v.value[c] = blend_pixel(grey, v.value[c], factor);
        store(job.to(x, y), v);
    });
}

// Calls pixel(address of a byte) where a filter of this margin fits, and copies the border.
template <class Pixel>
PIXEL void filter_image(const Job& job, int margin, Pixel pixel) {
    for_pixels(job, [&](int x, int y) {
        const byte* from = job.at(x, y);
        byte* to = job.to(x, y);
        bool fits = x >= margin && x < job.width - margin && y >= margin && y < job.height - margin;
#pragma unroll 1  // unrolled, three channels of 16 neighbours spill registers
        for (int c = 0; c < 3; ++c) to[c] = fits ? pixel(from + c) : from[c];
    });
}

PIXEL byte smooth_at(const byte* v, int pitch) {
    int sum = 4 * v[0];
    for (int dy = -1; dy <= 1; ++dy)
        for (int dx = -3; dx <= 3; dx += 3) sum += v[dy * pitch + dx];
    return smooth_pixel(sum);
}

PIXEL byte blur_at(const byte* v, int pitch) {
    int sum = 0;
    for (int k = -2; k <= 2; ++k) sum += v[-2 * pitch + 3 * k] + v[2 * pitch + 3 * k];
    for (int k = -1; k <= 1; ++k) sum += v[k * pitch - 6] + v[k * pitch + 6];
    return blur_pixel(sum);
}

PIXEL void smooth_image(const Job& job) {
    filter_image(job, 1, [&](const byte* v) { return smooth_at(v, job.pitch); });
}

PIXEL void blur_image(const Job& job) {
    filter_image(job, 2, [&](const byte* v) { return blur_at(v, job.pitch); });
}

PIXEL void sharpness_image(const Job& job) {
    float factor = job.task->numbers.factor;
    filter_image(job, 1, [&](const byte* v) {
        return blend_pixel(smooth_at(v, job.pitch), *v, factor);
    });
}

PIXEL void gather_image(const Job& job) {
    // A copy in registers, as in point_image.
    const Task task = *job.task;
    for_pixels(job, [&](int x, int y) {
        const int(&a)[6] = task.numbers.ints;
        int from_x = fixed_coordinate(a[0], a[1], a[2], x, y) >> 16;
        int from_y = fixed_coordinate(a[3], a[4], a[5], x, y) >> 16;
        bool inside = from_x >= 0 && from_x < job.width && from_y >= 0 && from_y < job.height;
        byte fill = task.fill;
        store(job.to(x, y), inside ? load(job.at(from_x, from_y)) : Rgb{{fill, fill, fill}});
    });
}

PIXEL void cutout_image(const Job& job) {
    int width = job.task->numbers.ints[0], height = job.task->numbers.ints[1];
    byte fill = job.task->fill;
    int left = drawn_coordinate(job.task->draw[0], job.width) - width / 2;
    int top = drawn_coordinate(job.task->draw[1], job.height) - height / 2;
    for_pixels(job, [&](int x, int y) {
        bool cut = x >= left && x < left + width && y >= top && y < top + height;
        store(job.to(x, y), cut ? Rgb{{fill, fill, fill}} : load(job.at(x, y)));
    });
}

PIXEL void warmth_image(const Job& job) {
    const int red = job.task->numbers.ints[0], green = job.task->numbers.ints[1];
    const int blue = job.task->numbers.ints[2];
    map_bytes(job, [=](byte v, int c) {
        return warmth_pixel(v, c == 0 ? red : c == 1 ? green : blue);
    });
}

PIXEL void run(const Job& job, Shared& shared) {
    switch (job.task->primitive) {
        case PRIMITIVE_COPY: return copy(job);
        case PRIMITIVE_GATHER: return gather_image(job);
        case PRIMITIVE_AUTOCONTRAST: return autocontrast_image(job, shared);
        case PRIMITIVE_EQUALIZE: return equalize_image(job, shared);
        case PRIMITIVE_CONTRAST: return contrast_image(job, shared);
        case PRIMITIVE_COLOR: return color_image(job);
        case PRIMITIVE_SHARPNESS: return sharpness_image(job);
        case PRIMITIVE_SMOOTH: return smooth_image(job);
        case PRIMITIVE_BLUR: return blur_image(job);
        case PRIMITIVE_CUTOUT: return cutout_image(job);
        case PRIMITIVE_WARMTH: return warmth_image(job);
#define POINT(name, function, map) \
    case PRIMITIVE_##name: return point_image<function>(job);
        POINT_PRIMITIVES(POINT)
#undef POINT
    }
}

// Returns the first task of this block's picture, from source to target.
PIXEL Job first_job(const Batch& batch) {
    const Picture& picture = batch.pictures[blockIdx.x];
    return {batch.tasks + batch.chains[blockIdx.x].first,
            batch.sources + picture.source,
            picture.source_pitch,
            batch.targets + picture.target,
            3 * picture.width,
            picture.height,
            picture.width};
}
