// Runs a kernel: block after block, the threads of a block as fibers in the order asked for.
#include "scheduler.h"

#include <link.h>
#include <setjmp.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace cuda_on_host {

Running running;

namespace {

enum State { ready, at_block_barrier, at_warp_barrier, exited };
enum Order { forward, backward, shuffled };

constexpr int most_threads = 1024;
constexpr size_t stack_bytes = 64 << 10;
constexpr char poison = char(0xA5);

struct Fiber {
    jmp_buf resume;
    bool started = false;
    State state;
    Place place;              // the rest: of the barrier it waits at
    int value;                // brought along to a block barrier
    unsigned mask, lanes;     // of a warp barrier
    unsigned long long lane_value;
};

Fiber fibers[most_threads];
char* stacks;
int threads;                                           // of a block
unsigned long long brought[most_threads / 32][32];     // to the last warp barrier
int block_sum;                                         // brought to the last block barrier
jmp_buf scheduler;
std::string failure;
Kernel kernel;
void** kernel_arguments;
volatile thread_local char anchor;  // there is always at least one thread-local variable to find

std::vector<Kernel>& kernels() {
    static std::vector<Kernel> all;
    return all;
}

Fiber& current() { return fibers[running.thread]; }

// Back to the scheduler, until it resumes this fiber.
void change_over() {
    running.active = false;
    if (!_setjmp(current().resume)) _longjmp(scheduler, 1);
    running.active = true;
}

// A fiber outlives its thread: the next block gives it another one.
void live() {
    for (;;) {
        change_over();
        kernel.call(kernel_arguments);
        current().state = exited;
    }
}

uint3 unravel(unsigned linear, dim3 shape) {
    return {linear % shape.x, linear / shape.x % shape.y, linear / shape.x / shape.y};
}

std::string coordinates(uint3 at) {
    auto text = [](unsigned number) { return std::to_string(number); };
    return "(" + text(at.x) + ", " + text(at.y) + ", " + text(at.z) + ")";
}

void select(int thread) {
    running.thread = thread;
    running.stack = {stacks + thread * stack_bytes, stack_bytes};
    threadIdx = unravel(thread, blockDim);
}

void resume(int thread) {
    select(thread);
    if (!_setjmp(scheduler)) _longjmp(fibers[thread].resume, 1);
}

void start(int thread) {
    ucontext_t context;
    getcontext(&context);
    context.uc_stack.ss_sp = stacks + thread * stack_bytes;
    context.uc_stack.ss_size = stack_bytes;
    makecontext(&context, live, 0);
    select(thread);
    if (!_setjmp(scheduler)) setcontext(&context);
    fibers[thread].started = true;
}

std::string whereabouts(int thread) {
    const Fiber& fiber = fibers[thread];
    std::string file = fiber.place.file;
    return thread_name(thread) + " waits at " + file.substr(file.rfind('/') + 1) + ":" +
           std::to_string(fiber.place.line);
}

bool same_place(int a, int b) {
    const Fiber &one = fibers[a], &other = fibers[b];
    return one.state == other.state && one.place.line == other.place.line &&
           !strcmp(one.place.file, other.place.file);
}

// The lanes that a thread at a warp barrier waits for, or 0 when some have not come to it yet.
unsigned complete_lanes(int me) {
    unsigned lanes = 0;
    int first = me - me % 32;
    for (int other = first; other < std::min(first + 32, threads); ++other) {
        bool named = fibers[me].mask >> (other - first) & 1;
        if (!named || fibers[other].state == exited) continue;
        if (!same_place(me, other) || fibers[other].mask != fibers[me].mask) return 0;
        lanes |= 1u << (other - first);
    }
    return lanes;
}

// Lets all lanes go on that have come to their barriers; false if there are none.
bool release_warps() {
    bool released = false;
    for (int thread = 0; thread < threads; ++thread) {
        unsigned lanes = fibers[thread].state == at_warp_barrier ? complete_lanes(thread) : 0;
        for (int lane = 0; lane < 32; ++lane) {
            if (!(lanes >> lane & 1)) continue;
            Fiber& fiber = fibers[thread - thread % 32 + lane];
            brought[thread / 32][lane] = fiber.lane_value;
            fiber.lanes = lanes;
            fiber.state = ready;
            released = true;
        }
    }
    return released;
}

// Lets the block go on; sets `failure` when its threads wait for each other at different barriers.
void release_block() {
    int first = -1;
    block_sum = 0;
    for (int thread = 0; thread < threads; ++thread) {
        if (fibers[thread].state == exited) continue;
        if (first < 0) first = thread;
        if (fibers[thread].state != at_block_barrier || !same_place(first, thread)) {
            failure = "barrier divergence in " + block_name(running.block) + ": " +
                      whereabouts(first) + ", " + whereabouts(thread);
            return;
        }
        block_sum += fibers[thread].value;
    }
    for (int thread = 0; thread < threads; ++thread)
        if (fibers[thread].state != exited) fibers[thread].state = ready;
    ++running.interval;
}

std::vector<int> in_order(int count, Order order, std::mt19937& random) {
    std::vector<int> turns(count);
    std::iota(turns.begin(), turns.end(), 0);
    if (order == backward) std::reverse(turns.begin(), turns.end());
    if (order == shuffled) std::shuffle(turns.begin(), turns.end(), random);
    return turns;
}

void run_block(Order order, std::mt19937& random) {
    running.interval = 0;
    for (int thread = 0; thread < threads; ++thread) {
        if (!fibers[thread].started) start(thread);
        fibers[thread].state = ready;
    }
    while (failure.empty()) {
        for (int thread : in_order(threads, order, random)) {
            if (fibers[thread].state != ready) continue;
            resume(thread);
            if (!failure.empty()) return;
        }
        bool all_exited = std::all_of(fibers, fibers + threads,
                                      [](const Fiber& fiber) { return fiber.state == exited; });
        if (all_exited) return;
        if (!release_warps()) release_block();
    }
}

// This library in memory, and in it the thread-local variables: the shared memory of all kernels.
struct Library {
    Memory whole, shared;
};

int look_at_library(dl_phdr_info* info, size_t, void* found) {
    const char* low = reinterpret_cast<const char*>(~size_t(0));
    const char* high = nullptr;
    size_t shared_bytes = 0;
    for (int i = 0; i < info->dlpi_phnum; ++i) {
        const auto& segment = info->dlpi_phdr[i];
        auto start = reinterpret_cast<const char*>(info->dlpi_addr + segment.p_vaddr);
        if (segment.p_type == PT_TLS) shared_bytes = segment.p_memsz;
        if (segment.p_type != PT_LOAD) continue;
        low = std::min(low, start);
        high = std::max(high, start + segment.p_memsz);
    }
    Memory whole = {low, size_t(high - low)};
    if (!high || !whole.holds(&threadIdx, 1)) return 0;
    *static_cast<Library*>(found) = {
        whole, {static_cast<const char*>(info->dlpi_tls_data), shared_bytes}};
    return 1;
}

}  // namespace

void add_kernel(Kernel kernel) { kernels().push_back(kernel); }

void fail(const char* message) {
    failure = message;
    running.active = false;
    _longjmp(scheduler, 1);
}

int wait_for_block(int value, Place place) {
    Fiber& me = current();
    me.state = at_block_barrier;
    me.place = place;
    me.value = value;
    change_over();
    return block_sum;
}

Brought wait_for_warp(unsigned mask, unsigned long long value, Place place) {
    Fiber& me = current();
    if (!(mask >> lane_index() & 1)) fail("a lane calls a warp function whose mask leaves it out");
    me.state = at_warp_barrier;
    me.place = place;
    me.mask = mask;
    me.lane_value = value;
    change_over();
    return {brought[running.thread / 32], me.lanes};
}

unsigned lane_index() { return running.thread % 32; }
std::string block_name(int linear) { return "block " + coordinates(unravel(linear, gridDim)); }
std::string thread_name(int linear) { return "thread " + coordinates(unravel(linear, blockDim)); }

}  // namespace cuda_on_host

using namespace cuda_on_host;

EXPORT int count_kernels() { return int(kernels().size()); }

EXPORT void describe_kernel(int index, Kernel* description) { *description = kernels()[index]; }

// Returns what went wrong, or null.
EXPORT const char* launch_kernel(int index, const unsigned* grid, const unsigned* block,
                                 void** arguments, int order, unsigned seed) {
    if (!stacks)
        stacks = static_cast<char*>(mmap(nullptr, most_threads * stack_bytes,
                                         PROT_READ | PROT_WRITE,
                                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    kernel = kernels()[index];
    kernel_arguments = arguments;
    gridDim = {grid[0], grid[1], grid[2]};
    blockDim = {block[0], block[1], block[2]};
    threads = int(block[0] * block[1] * block[2]);
    failure.clear();
    anchor = 0;  // a thread's variables get their place when it first touches one
    Library library;
    dl_iterate_phdr(look_at_library, &library);
    start_launch(library.whole);
    std::mt19937 random(seed);
    for (int linear : in_order(int(grid[0] * grid[1] * grid[2]), Order(order), random)) {
        running.block = linear;
        blockIdx = unravel(linear, gridDim);
        memset(const_cast<char*>(library.shared.start), poison, library.shared.bytes);
        start_block(library.shared);
        run_block(Order(order), random);
        if (failure.empty()) continue;
        for (Fiber& fiber : fibers) fiber.started = false;  // some hang in the middle of the kernel
        return failure.c_str();
    }
    return nullptr;
}
