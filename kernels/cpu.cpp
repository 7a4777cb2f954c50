// The CPU target: the same pixels.h, a row at a time so that the compiler vectorises, the images of
// a batch shared out among threads.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#define PIXEL static inline
#include "pixels.h"
#include "tasks.h"

namespace {

struct Source {
    const byte* data;
    int pitch;
    const byte* row(int y) const { return data + std::ptrdiff_t(y) * pitch; }
};

struct Job {  // one op on one image or rectangle: from `in` to `out`, which never overlap
    const Task& task;
    Source in;
    byte* out;
    int out_pitch;
    int height, width;

    int row_bytes() const { return 3 * width; }
    byte* out_row(int y) const { return out + std::ptrdiff_t(y) * out_pitch; }
    std::int64_t pixels() const { return std::int64_t(height) * width; }
};

// Calls work(source bytes, target bytes, count) for every row, or once where the rows are adjacent.
// The count is a multiple of 3, and every call starts at a red byte.
template <class Work>
void for_rows(const Job& job, Work work) {
    if (job.in.pitch == job.row_bytes() && job.out_pitch == job.row_bytes()) {
        work(job.in.data, job.out, 3 * job.pixels());
    } else {
        for (int y = 0; y < job.height; ++y)
            work(job.in.row(y), job.out_row(y), std::int64_t(job.row_bytes()));
    }
}

// memcpy of more than a few KB may turn to `rep movsb`, which some virtual machines run at a tenth of
// the speed of vector moves. Blocks of a fixed size become vector moves everywhere.
void copy_bytes(byte* to, const byte* from, std::int64_t n) {
    constexpr int block = 256;
    for (; n >= block; n -= block, to += block, from += block) std::memcpy(to, from, block);
    std::memcpy(to, from, n);
}

void copy(const Job& job) {
    for_rows(job, [](const byte* from, byte* to, std::int64_t n) { copy_bytes(to, from, n); });
}

template <class Function>
void map_bytes(const Job& job, Function function) {
    for_rows(job, [&](const byte* __restrict from, byte* __restrict to, std::int64_t n) {
        for (std::int64_t i = 0; i < n; ++i) to[i] = function(from[i]);
    });
}

// --- lookup tables --------------------------------------------------------------------------------

struct Tables {
    byte entry[3][256];
};

void look_up(const Job& job, const Tables& tables) {
    for_rows(job, [&](const byte* __restrict from, byte* __restrict to, std::int64_t n) {
        for (std::int64_t i = 0; i < n; i += 3)
            for (int c = 0; c < 3; ++c) to[i + c] = tables.entry[c][from[i + c]];
    });
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
    // Two histograms in turn: neighbouring pixels are often equal, and an increment would have to
    // wait for the one before it.
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
        int step = equalize_step(int(job.pixels()), brightest), below = 0;
        for (int v = 0; v < 256; ++v) {
            tables.entry[c][v] = equalize_entry(v, below, step);
            below += count[0][c][v];
        }
    }
    look_up(job, tables);
}

// --- blends ---------------------------------------------------------------------------------------

void contrast(const Job& job) {
    std::uint64_t sum = 0;
    for_rows(job, [&](const byte* __restrict from, byte*, std::int64_t n) {
        constexpr std::int64_t block = 3 << 20;  // their sum fits in 32 bits, which vectorise better
        for (std::int64_t begin = 0; begin < n; begin += block) {
            std::uint32_t part = 0;
            for (std::int64_t i = begin; i < std::min(begin + block, n); i += 3)
                part += grey_pixel(from[i], from[i + 1], from[i + 2]);
            sum += part;
        }
    });
    int mean = mean_grey(sum, job.pixels());
    float factor = job.task.factor;
    map_bytes(job, [=](byte v) { return blend_pixel(mean, v, factor); });
}

void color(const Job& job) {
    float factor = job.task.factor;
    for_rows(job, [&](const byte* __restrict from, byte* __restrict to, std::int64_t n) {
        for (std::int64_t i = 0; i < n; i += 3) {
            int grey = grey_pixel(from[i], from[i + 1], from[i + 2]);
            for (int c = 0; c < 3; ++c) to[i + c] = blend_pixel(grey, from[i + c], factor);
        }
    });
}

// --- filters --------------------------------------------------------------------------------------

// Calls work(y, first byte, last byte + 1) for the rows that a filter of this margin reaches, and
// copies the border around them, as Pillow does.
template <class Work>
void filter_rows(const Job& job, int margin, Work work) {
    int n = job.row_bytes(), edge = 3 * margin;
    for (int y = 0; y < job.height; ++y) {
        const byte* from = job.in.row(y);
        byte* to = job.out_row(y);
        if (y < margin || y >= job.height - margin || n <= 2 * edge) {
            std::memcpy(to, from, n);
        } else {
            std::memcpy(to, from, edge);
            work(y, edge, n - edge);
            std::memcpy(to + n - edge, from + n - edge, edge);
        }
    }
}

// Both filters add up columns first: a column's sum serves several pixels of the row. The rows and
// sums never overlap, which ivdep tells a compiler that cannot see it.
typedef unsigned short Sum;

template <class Finish>
void smooth_rows(const Job& job, Finish finish) {
    std::vector<Sum> columns(job.row_bytes());
    filter_rows(job, 1, [&](int y, int begin, int end) {
        const byte* __restrict above = job.in.row(y - 1);
        const byte* __restrict here = job.in.row(y);
        const byte* __restrict under = job.in.row(y + 1);
        byte* __restrict to = job.out_row(y);
        Sum* __restrict column = columns.data();
#pragma GCC ivdep
        for (int i = 0; i < end + 3; ++i) column[i] = above[i] + here[i] + under[i];
#pragma GCC ivdep
        for (int i = begin; i < end; ++i) {
            Sum sum = column[i - 3] + column[i] + column[i + 3] + 4 * here[i];
            to[i] = finish(smooth_pixel(sum), here[i]);
        }
    });
}

void blur(const Job& job) {
    std::vector<Sum> columns(2 * job.row_bytes());
    filter_rows(job, 2, [&](int y, int begin, int end) {
        const byte* __restrict r0 = job.in.row(y - 2);
        const byte* __restrict r1 = job.in.row(y - 1);
        const byte* __restrict r2 = job.in.row(y);
        const byte* __restrict r3 = job.in.row(y + 1);
        const byte* __restrict r4 = job.in.row(y + 2);
        byte* __restrict to = job.out_row(y);
        Sum* __restrict outer = columns.data();  // of the first and the last row
        Sum* __restrict inner = outer + job.row_bytes();
#pragma GCC ivdep
        for (int i = 0; i < end + 6; ++i) {
            outer[i] = r0[i] + r4[i];
            inner[i] = r1[i] + r2[i] + r3[i];
        }
#pragma GCC ivdep
        for (int i = begin; i < end; ++i) {
            Sum sum = outer[i - 6] + outer[i - 3] + outer[i] + outer[i + 3] + outer[i + 6] +
                      inner[i - 6] + inner[i + 6];
            to[i] = blur_pixel(sum);
        }
    });
}

// --- geometry -------------------------------------------------------------------------------------

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
        std::memcpy(v, from + 3 * i, sizeof v);
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

// A row of the target whose pixels lie along a line that is not a row of the source.
void gather_line(const Job& job, byte* __restrict to, int xx, int yy, int step_x, int step_y, int pixels) {
    // Pixels are moved as four bytes, and the next pixel overwrites the fourth. But behind the last
    // pixel of the image there may be nothing to read, and places are 32 bits.
    int last = pixels - 1, bottom = std::max(yy, yy + step_y * last) >> 16;
    if (bottom + 2 < job.height) fetch(job.in.row(bottom + 2), job.row_bytes());
    bool to_the_end =
        bottom == job.height - 1 && std::max(xx, xx + step_x * last) >> 16 == job.width - 1;
    if (to_the_end || std::int64_t(job.height) * job.in.pitch > UINT32_MAX) {
        for (int x = 0; x < pixels; ++x, xx += step_x, yy += step_y)
            std::memcpy(to + 3 * x, job.in.row(yy >> 16) + 3 * (xx >> 16), 3);
        return;
    }
    constexpr int block = 64;
    unsigned places[block];
    const unsigned pitch = job.in.pitch;
    const byte* __restrict from = job.in.data;
    for (int x = 0; x < pixels; x += block, to += 3 * block) {
        for (int i = 0; i < block; ++i) {
            int column = fixed_coordinate(step_x, 0, xx, x + i, 0) >> 16;
            int row = fixed_coordinate(step_y, 0, yy, x + i, 0) >> 16;
            places[i] = unsigned(row) * pitch + 3u * unsigned(column);
        }
        int count = std::min(block, pixels - x);
        for (int i = 0; i < count - 1; ++i) std::memcpy(to + 3 * i, from + places[i], 4);
        std::memcpy(to + 3 * (count - 1), from + places[count - 1], 3);
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

// --------------------------------------------------------------------------------------------------

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

void run_chain(const Picture& picture, const Task* tasks, byte* scratch) {
    static const Task nothing = {};
    const int row = 3 * picture.width, height = picture.height, width = picture.width;
    Source in{picture.source, picture.source_pitch};
    if (picture.count == 0) copy({nothing, in, picture.target, row, height, width});
    byte* image = nullptr;  // the latest state, once it is no longer the source
    for (int i = 0, whole = picture.whole; i < picture.count; ++i) {
        const Task& task = tasks[picture.first + i];
        if (task.width) {
            run_in_place(task, image, row, image == picture.target ? scratch : picture.target);
        } else {
            // These take turns so that the last one writes the target.
            image = whole-- % 2 ? picture.target : scratch;
            run({task, in, image, row, height, width});
            in = {image, row};
        }
    }
}

// --- threads --------------------------------------------------------------------------------------

// The images of one call. Whoever comes takes the next; late helpers find none left and touch nothing.
struct Work {
    const Picture* pictures;
    std::int64_t count;
    const Task* tasks;
    std::int64_t scratch_bytes;
    std::atomic<std::int64_t> next{0}, done{0};

    void take_part() {
        std::unique_ptr<byte[]> scratch;
        for (std::int64_t i; (i = next++) < count; ++done) {
            if (scratch_bytes && !scratch) scratch.reset(new byte[scratch_bytes]);
            run_chain(pictures[i], tasks, scratch.get());
        }
    }
};

// Threads that wait for work. Nobody waits for them: on a busy machine it may take milliseconds until
// one gets a core, and by then the caller has done the work alone.
class Helpers {
public:
    void call(const std::shared_ptr<Work>& work, std::int64_t helpers) {
        {
            std::lock_guard<std::mutex> lock(mutex);
            for (; threads < helpers; ++threads) std::thread([this] { wait(); }).detach();
            for (std::int64_t i = 0; i < helpers; ++i) calls.push_back(work);
        }
        for (std::int64_t i = 0; i < helpers; ++i) wake.notify_one();
    }

    // Those of this process: a fork leaves the threads behind. They last as long as the process.
    static Helpers& ours() {
        static std::mutex guard;
        static Helpers* helpers = nullptr;
        static pid_t owner = 0;
        std::lock_guard<std::mutex> lock(guard);
        if (owner != getpid()) {
            helpers = new Helpers;
            owner = getpid();
        }
        return *helpers;
    }

private:
    void wait() {
        for (;;) {
            std::shared_ptr<Work> work;
            {
                std::unique_lock<std::mutex> lock(mutex);
                wake.wait(lock, [this] { return !calls.empty(); });
                work = std::move(calls.front());
                calls.pop_front();
            }
            work->take_part();
        }
    }

    std::mutex mutex;
    std::condition_variable wake;
    std::deque<std::shared_ptr<Work>> calls;
    std::int64_t threads = 0;
};

}  // namespace

extern "C" void ddas_augment(const Picture* pictures, std::int64_t n, const Task* tasks, int threads) {
    // Waking a helper costs some microseconds: less work than this is done sooner alone.
    constexpr std::int64_t bytes_worth_a_helper = 1 << 18;
    auto work = std::make_shared<Work>();
    std::int64_t all_bytes = 0, scratch_bytes = 0;
    for (std::int64_t i = 0; i < n; ++i) {
        std::int64_t bytes = 3 * std::int64_t(pictures[i].height) * pictures[i].width;
        all_bytes += bytes;
        if (pictures[i].count > 1) scratch_bytes = std::max(scratch_bytes, bytes);
    }
    work->pictures = pictures;
    work->count = n;
    work->tasks = tasks;
    work->scratch_bytes = scratch_bytes;
    std::int64_t helpers = std::min({threads - 1l, n - 1, all_bytes / bytes_worth_a_helper});
    if (helpers > 0) Helpers::ours().call(work, helpers);
    work->take_part();
    while (work->done < n) std::this_thread::yield();  // for the images that helpers have begun
}
