// Ops that move pixels or cut them out.
#pragma once

#include <algorithm>
#include <type_traits>

#include "cpu_job.h"

namespace {

struct Span {
    int begin, end;
};

Span overlap(Span one, Span other) {
    return {std::max(one.begin, other.begin), std::min(one.end, other.end)};
}

// Returns the interval of x in 0..width-1 where start + step * x is in 0..size-1 (all in 16.16).
Span inside(std::int64_t start, std::int64_t step, int size, int width) {
    std::int64_t limit = std::int64_t(size) << 16;
    if (step == 0) return start >= 0 && start < limit ? Span{0, width} : Span{0, 0};
    if (step < 0) {  // mirror, so that the value grows with x
        start = limit - 1 - start;
        step = -step;
    }
    // first x with start + step x >= 0, and first with start + step x >= limit
    std::int64_t first = start >= 0 ? 0 : (-start + step - 1) / step;
    std::int64_t past = start >= limit ? 0 : (limit - start + step - 1) / step;
    return {int(std::min<std::int64_t>(first, width)), int(std::min<std::int64_t>(past, width))};
}

typedef byte Vector __attribute__((vector_size(16)));

// Prefetches a row that is written backwards, read upwards or read a few pixels at a time: the hardware
// prefetcher does not recognise these patterns.
void fetch(const byte* row, int bytes) {
    for (int i = 0; i < bytes; i += 64) __builtin_prefetch(row + i);
}

void reverse_pixels(byte* __restrict to, const byte* __restrict from, int pixels) {
    int i = 0;
    byte* end = to + 3 * pixels;
    for (; i + 16 <= pixels; i += 16, end -= 48) {
        Vector v[3];
        for (int k = 0; k < 3; ++k) std::memcpy(&v[k], from + 3 * i + 16 * k, 16);
        // Byte 3i + c comes from byte 45 - 3i + c; the middle vector takes from all three.
        const Vector order[] = {
            {29, 30, 31, 26, 27, 28, 23, 24, 25, 20, 21, 22, 17, 18, 19, 14},
            {31, 0, 27, 28, 29, 24, 25, 26, 21, 22, 23, 18, 19, 20, 15, 16},
            {17, 12, 13, 14, 9, 10, 11, 6, 7, 8, 3, 4, 5, 0, 1, 2},
        };
        Vector first = __builtin_shuffle(v[1], v[2], order[0]);
        Vector middle = __builtin_shuffle(v[0], v[1], order[1]);
        Vector last = __builtin_shuffle(v[0], v[1], order[2]);
        middle[1] = v[2][0];
        std::memcpy(end - 48, &first, sizeof first);
        std::memcpy(end - 32, &middle, sizeof middle);
        std::memcpy(end - 16, &last, sizeof last);
    }
    for (; i < pixels; ++i) std::memcpy(to + 3 * (pixels - i - 1), from + 3 * i, 3);
}

typedef unsigned Four __attribute__((vector_size(16)));  // four pixels, one byte of each unused

Vector side_by_side(Four pixels) {  // in the first twelve bytes
    const Vector order = {0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14};
    return __builtin_shuffle(Vector(pixels), order);
}

// Fills a row of the target from a sloped line of the source.
void gather_line(const Job& job, byte* __restrict to, int xx, int yy, int step_x, int step_y,
                 int pixels) {
    // A 4-byte read of the last pixel would end outside the image, and offsets have 32 bits.
    int last = pixels - 1, bottom = std::max(yy, yy + step_y * last) >> 16;
    if (bottom + 2 < job.height) fetch(job.in.row(bottom + 2), job.row_bytes());
    bool ends_image =
        bottom == job.height - 1 && std::max(xx, xx + step_x * last) >> 16 == job.width - 1;
    if (ends_image || std::int64_t(job.height) * job.in.pitch > UINT32_MAX) {
        for (int x = 0; x < pixels; ++x, xx += step_x, yy += step_y)
            std::memcpy(to + 3 * x, job.in.row(yy >> 16) + 3 * (xx >> 16), 3);
        return;
    }
    constexpr int block = 256;
    unsigned offsets[block];
    const unsigned pitch = job.in.pitch;
    const byte* __restrict from = job.in.data;
    for (int x = 0; x < pixels; x += block, to += 3 * block) {
        int count = std::min(block, pixels - x);
        for (int i = 0; i < (count + 15) / 16 * 16; ++i) {  // whole vectors
            int column = fixed_coordinate(step_x, 0, xx, x + i, 0) >> 16;
            int row = fixed_coordinate(step_y, 0, yy, x + i, 0) >> 16;
            offsets[i] = unsigned(row) * pitch + 3u * unsigned(column);
        }
        auto pixel = [&](int i) {
            unsigned word;
            std::memcpy(&word, from + offsets[i], 4);
            return word;
        };
        int i = 0;
        for (; i + 6 <= count; i += 4) {
            Vector four = side_by_side(Four{pixel(i), pixel(i + 1), pixel(i + 2), pixel(i + 3)});
            std::memcpy(to + 3 * i, &four, sizeof four);  // the next store overwrites the excess
        }
        for (; i < count; ++i) std::memcpy(to + 3 * i, from + offsets[i], 3);
    }
}

// Writes four columns of the source, from `column` on, as four rows of the target, from y on, in tiles
// of 4 x 4 pixels; the last tiles overlap.
template <bool left>
void rotate_columns(const Job& job, int column, int y) {
    // Loads 16 bytes for the 12 of four pixels, none of them outside the image.
    const int size = job.width, before = column > 1 ? 4 : 0;
    const Vector order = Vector{0, 1, 2, 2, 3, 4, 5, 5, 6, 7, 8, 8, 9, 10, 11, 11} + byte(before);
    auto tile = [&](int x, auto bytes) {
        auto row = [&](int k) {
            const byte* from = job.in.row(left ? x + k : size - 1 - x - k) + 3 * column;
            Vector around;
            std::memcpy(&around, from - before, sizeof around);
            return Four(__builtin_shuffle(around, order));
        };
        auto store = [&](int k, Four pixels) {
            Vector four = side_by_side(pixels);
            std::memcpy(job.out_row(y + (left ? 3 - k : k)) + 3 * x, &four, bytes);
        };
        const Four a = row(0), b = row(1), c = row(2), d = row(3);
        const Four ab = __builtin_shuffle(a, b, Four{0, 4, 1, 5});
        const Four cd = __builtin_shuffle(c, d, Four{0, 4, 1, 5});
        store(0, __builtin_shuffle(ab, cd, Four{0, 1, 4, 5}));
        store(1, __builtin_shuffle(ab, cd, Four{2, 3, 6, 7}));
        const Four ab_end = __builtin_shuffle(a, b, Four{2, 6, 3, 7});
        const Four cd_end = __builtin_shuffle(c, d, Four{2, 6, 3, 7});
        store(2, __builtin_shuffle(ab_end, cd_end, Four{0, 1, 4, 5}));
        store(3, __builtin_shuffle(ab_end, cd_end, Four{2, 3, 6, 7}));
    };
    // A 16-byte store; the next tile overwrites the excess.
    for (int x = 0; x < size - 4; x += 4)
        tile(std::min(x, size - 6), std::integral_constant<int, 16>());
    tile(size - 4, std::integral_constant<int, 12>());
}

// Rotates a square image of at least 6 x 6 pixels by 90 degrees.
template <bool left>
void rotate(const Job& job) {
    const int last = job.width - 4;
    for (int i = 0; i < last + 4; i += 4) {
        int y = std::min(i, last);
        rotate_columns<left>(job, left ? last - y : y, y);
    }
}

void gather(const Job& job) {
    // A copy: the compiler cannot know that writing a pixel leaves the task unchanged.
    const Task task = job.task;
    const int* a = task.numbers.ints;
    constexpr int one = 1 << 16;
    if (a[0] == 0 && a[4] == 0 && job.width == job.height && job.width >= 6) {
        const int column = a[2] >> 16, row = a[5] >> 16, last = job.width - 1;  // of the first pixel
        if (a[1] == -one && a[3] == one && column == last && row == 0) return rotate<true>(job);
        if (a[1] == one && a[3] == -one && column == 0 && row == last) return rotate<false>(job);
    }
    Span across, down;  // where the column and the row of the source are inside the image
    for (int y = 0; y < job.height; ++y) {
        int xx = fixed_coordinate(a[0], a[1], a[2], 0, y), yy = fixed_coordinate(a[3], a[4], a[5], 0, y);
        if (y == 0 || a[1]) across = inside(xx, a[0], job.width, job.width);
        if (y == 0 || a[4]) down = inside(yy, a[3], job.height, job.width);
        Span span = overlap(across, down);
        byte* to = job.out_row(y);
        if (span.begin >= span.end) {
            std::memset(to, task.fill, job.row_bytes());
            continue;
        }
        int pixels = span.end - span.begin;
        if (pixels < job.width) {
            std::memset(to, task.fill, 3 * span.begin);
            std::memset(to + 3 * span.end, task.fill, 3 * (job.width - span.end));
        }
        to += 3 * span.begin;
        if (a[0] == one && a[3] == 0) {
            int after_next = (yy + 2 * a[4]) >> 16;
            if (a[4] < 0 && after_next >= 0) fetch(job.in.row(after_next), job.row_bytes());
            copy_bytes(to, job.in.row(yy >> 16) + 3 * ((xx >> 16) + span.begin), 3 * pixels);
        } else if (a[0] == -one && a[3] == 0) {
            fetch(job.out_row(y + 1), job.row_bytes());
            reverse_pixels(to, job.in.row(yy >> 16) + 3 * ((xx >> 16) - (span.end - 1)), pixels);
        } else {
            gather_line(job, to, xx + a[0] * span.begin, yy + a[3] * span.begin, a[0], a[3], pixels);
        }
    }
}

void cutout(const Job& job) {
    copy(job);
    int width = job.task.numbers.ints[0], height = job.task.numbers.ints[1];
    int left = drawn_coordinate(job.task.draw[0], job.width) - width / 2;
    int top = drawn_coordinate(job.task.draw[1], job.height) - height / 2;
    int right = std::min(left + width, job.width), bottom = std::min(top + height, job.height);
    left = std::max(left, 0);
    for (int y = std::max(top, 0); y < bottom; ++y)
        if (left < right) std::memset(job.out_row(y) + 3 * left, job.task.fill, 3 * (right - left));
}

}  // namespace
