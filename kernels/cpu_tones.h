// Ops that change the values of pixels: by tables computed per image, and by blends.
#pragma once

#include <algorithm>

#include "cpu_job.h"

namespace {

struct Tables {
    byte entry[3][256];
};

#ifdef __AVX512VBMI__
// One instruction looks up 64 bytes in 128 entries: ten times faster than byte by byte.
constexpr bool tables_are_fast = true;
typedef byte Wide __attribute__((vector_size(64)));

struct WideTable {
    Wide part[4];

    Wide operator[](Wide v) const {
        return v < 128 ? __builtin_shuffle(part[0], part[1], v) : __builtin_shuffle(part[2], part[3], v);
    }
};

// Returns the number of bytes processed, a multiple of 3.
std::int64_t look_up_vectors(const Tables& tables, const byte* from, byte* to, std::int64_t n) {
    WideTable channel[3];
    std::memcpy(channel, tables.entry, sizeof channel);
    byte number[192];  // a whole number of vectors and of pixels
    for (int k = 0; k < 192; ++k) number[k] = k % 3;
    std::int64_t i = 0;
    for (; i + 192 <= n; i += 192)
        for (int k = 0; k < 192; k += 64) {
            Wide v, c;
            std::memcpy(&v, from + i + k, sizeof v);
            std::memcpy(&c, number + k, sizeof c);
            v = c == 0 ? channel[0][v] : c == 1 ? channel[1][v] : channel[2][v];
            std::memcpy(to + i + k, &v, sizeof v);
        }
    return i;
}
#else
constexpr bool tables_are_fast = false;

std::int64_t look_up_vectors(const Tables&, const byte*, byte*, std::int64_t) { return 0; }
#endif

void look_up(const Job& job, const Tables& tables) {
    for_rows(job, [&](const byte* __restrict from, byte* __restrict to, std::int64_t n) {
        for (std::int64_t i = look_up_vectors(tables, from, to, n); i < n; i += 3)
            for (int c = 0; c < 3; ++c) to[i + c] = tables.entry[c][from[i + c]];
    });
}

// Applies a function that is slower than a table look-up, on processors with fast look-ups.
template <class Function>
void map_values(const Job& job, Function function) {
    if (!tables_are_fast) return map_bytes(job, function);
    Tables tables;
    for (int v = 0; v < 256; ++v) tables.entry[0][v] = function(byte(v));
    std::memcpy(tables.entry[1], tables.entry[0], 256);
    std::memcpy(tables.entry[2], tables.entry[0], 256);
    look_up(job, tables);
}

void autocontrast(const Job& job) {
    // 96 bytes are a whole number of vectors and of pixels: lane i always holds channel i % 3.
    constexpr int lanes = 96;
    byte low[lanes], high[lanes];
    std::memset(low, 255, lanes);
    std::memset(high, 0, lanes);
    for_rows(job, [&](const byte* __restrict from, byte*, std::int64_t n) {
        std::int64_t i = 0;
        for (; i + lanes <= n; i += lanes)
            for (int k = 0; k < lanes; ++k) {
                low[k] = from[i + k] < low[k] ? from[i + k] : low[k];
                high[k] = from[i + k] > high[k] ? from[i + k] : high[k];
            }
        for (int k = 0; i + k < n; ++k) {
            low[k] = from[i + k] < low[k] ? from[i + k] : low[k];
            high[k] = from[i + k] > high[k] ? from[i + k] : high[k];
        }
    });
    Tables tables;
    for (int c = 0; c < 3; ++c) {
        for (int k = c; k < lanes; k += 3) {
            low[c] = low[k] < low[c] ? low[k] : low[c];
            high[c] = high[k] > high[c] ? high[k] : high[c];
        }
        for (int v = 0; v < 256; ++v) tables.entry[c][v] = autocontrast_entry(v, low[c], high[c]);
    }
    look_up(job, tables);
}

void equalize(const Job& job) {
    // Alternate between two histograms: adjacent pixels are often equal, and an increment of the
    // same counter waits for the one before it.
    int count[2][3][256] = {};
    for_rows(job, [&](const byte* __restrict from, byte*, std::int64_t n) {
        std::int64_t i = 0;
        for (; i + 6 <= n; i += 6)
            for (int k = 0; k < 6; ++k) ++count[k / 3][k % 3][from[i + k]];
        for (int k = 0; i + k < n; ++k) ++count[0][k][from[i + k]];
    });
    Tables tables;
    for (int c = 0; c < 3; ++c) {
        int brightest = 0;
        for (int v = 0; v < 256; ++v) {
            count[0][c][v] += count[1][c][v];
            if (count[0][c][v]) brightest = count[0][c][v];
        }
        unsigned below[256], sum = 0;
        for (int v = 0; v < 256; ++v) {
            below[v] = sum;
            sum += count[0][c][v];
        }
        EqualizeStep step = equalize_step(int(job.pixels()), brightest);
        for (int v = 0; v < 256; ++v) tables.entry[c][v] = equalize_entry(v, below[v], step);
    }
    look_up(job, tables);
}

void contrast(const Job& job) {
    std::uint64_t sum = 0;
    for_rows(job, [&](const byte* __restrict from, byte*, std::int64_t n) {
        constexpr std::int64_t block = 3 << 20;  // its sum fits in 32 bits, which vectorises better
        for (std::int64_t begin = 0; begin < n; begin += block) {
            std::uint32_t part = 0;
            for (std::int64_t i = begin; i < std::min(begin + block, n); i += 3)
                part += grey_pixel(from[i], from[i + 1], from[i + 2]);
            sum += part;
        }
    });
    int mean = mean_grey(sum, job.pixels());
    float factor = job.task.numbers.factor;
    map_values(job, [=](byte v) { return blend_pixel(mean, v, factor); });
}

void color(const Job& job) {
    float factor = job.task.numbers.factor;
    for_rows(job, [&](const byte* __restrict from, byte* __restrict to, std::int64_t n) {
        for (std::int64_t i = 0; i < n; i += 3) {
            int grey = grey_pixel(from[i], from[i + 1], from[i + 2]);
            for (int c = 0; c < 3; ++c) to[i + c] = blend_pixel(grey, from[i + c], factor);
        }
    });
}

void warmth(const Job& job) {
    // As in autocontrast: lane i always holds channel i % 3.
    constexpr int lanes = 96;
    unsigned short gain[lanes];
    for (int k = 0; k < lanes; ++k) gain[k] = job.task.numbers.ints[k % 3];
    for_rows(job, [&](const byte* __restrict from, byte* __restrict to, std::int64_t n) {
        std::int64_t i = 0;
        for (; i + lanes <= n; i += lanes)
            for (int k = 0; k < lanes; ++k) to[i + k] = warmth_pixel(from[i + k], gain[k]);
        for (int k = 0; i + k < n; ++k) to[i + k] = warmth_pixel(from[i + k], gain[k]);
    });
}

}  // namespace
