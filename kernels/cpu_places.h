// Ops that move pixels, or cut them out.
#pragma once

#include <algorithm>

#include "cpu_job.h"

namespace {

struct Span {
    int begin, end;
};

Span overlap(Span one, Span other) {
    return {std::max(one.begin, other.begin), std::min(one.end, other.end)};
}

// The x of 0..width-1 for which start + step * x lies in 0..size-1 (all in 16.16): an interval.
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

// For rows that are written backwards, or read a few pixels at a time: the processor does not foresee
// which memory comes next.
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

// Moves the pixels at(0), at(1), … side by side. Reads four bytes of each.
template <class At>
void collect_pixels(byte* to, int count, At at) {
    typedef unsigned Four __attribute__((vector_size(16)));
    auto word = [&](int i) {
        unsigned pixel;
        std::memcpy(&pixel, at(i), 4);
        return pixel;
    };
    int i = 0;
    // What is written behind four pixels is overwritten by the next.
    for (; i + 6 <= count; i += 4) {
        Four four = {word(i), word(i + 1), word(i + 2), word(i + 3)};
        const Vector order = {0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14};
        Vector packed = __builtin_shuffle(Vector(four), order);
        std::memcpy(to + 3 * i, &packed, sizeof packed);
    }
    for (; i < count - 1; ++i) std::memcpy(to + 3 * i, at(i), 4);
    std::memcpy(to + 3 * i, at(i), 3);
}

// A row of the target whose pixels lie along a line that is not a row of the source.
void gather_line(const Job& job, byte* __restrict to, int xx, int yy, int step_x, int step_y, int pixels) {
    // Behind the last pixel of the image there may be nothing to read, and places are 32 bits.
    int last = pixels - 1, bottom = std::max(yy, yy + step_y * last) >> 16;
    if (bottom + 2 < job.height) fetch(job.in.row(bottom + 2), job.row_bytes());
    bool to_the_end =
        bottom == job.height - 1 && std::max(xx, xx + step_x * last) >> 16 == job.width - 1;
    if (to_the_end || std::int64_t(job.height) * job.in.pitch > UINT32_MAX) {
        for (int x = 0; x < pixels; ++x, xx += step_x, yy += step_y)
            std::memcpy(to + 3 * x, job.in.row(yy >> 16) + 3 * (xx >> 16), 3);
        return;
    }
    if (step_x == 0 && (step_y & 0xffff) == 0) {  // down or up a column, as in a quarter turn
        const byte* from = job.in.row(yy >> 16) + 3 * (xx >> 16);
        const std::ptrdiff_t step = std::ptrdiff_t(step_y >> 16) * job.in.pitch;
        return collect_pixels(to, pixels, [=](int i) { return from + i * step; });
    }
    constexpr int block = 256;
    unsigned places[block];
    const unsigned pitch = job.in.pitch;
    const byte* __restrict from = job.in.data;
    for (int x = 0; x < pixels; x += block, to += 3 * block) {
        int count = std::min(block, pixels - x);
        for (int i = 0; i < (count + 15) / 16 * 16; ++i) {  // whole vectors
            int column = fixed_coordinate(step_x, 0, xx, x + i, 0) >> 16;
            int row = fixed_coordinate(step_y, 0, yy, x + i, 0) >> 16;
            places[i] = unsigned(row) * pitch + 3u * unsigned(column);
        }
        collect_pixels(to, count, [&](int i) { return from + places[i]; });
    }
}

void gather(const Job& job) {
    // A copy: for all the compiler knows, writing a pixel may change the task.
    const Task task = job.task;
    const int* a = task.ints;
    constexpr int one = 1 << 16;
    Span across, down;  // where the row and the column of the source are inside it
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
            std::memcpy(to, job.in.row(yy >> 16) + 3 * ((xx >> 16) + span.begin), 3 * pixels);
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
    int width = job.task.ints[0], height = job.task.ints[1];
    int left = drawn_coordinate(job.task.draw[0], job.width) - width / 2;
    int top = drawn_coordinate(job.task.draw[1], job.height) - height / 2;
    int right = std::min(left + width, job.width), bottom = std::min(top + height, job.height);
    left = std::max(left, 0);
    for (int y = std::max(top, 0); y < bottom; ++y)
        if (left < right) std::memset(job.out_row(y) + 3 * left, job.task.fill, 3 * (right - left));
}

}  // namespace
