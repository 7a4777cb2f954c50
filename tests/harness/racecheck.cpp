// Checks every access of a kernel to memory. The compiler's -fsanitize=thread puts a call in front
// of each; here are the functions it calls, in place of the sanitizer's own. An access fails that
//  - lies outside the watched arrays, the shared memory and the thread's own stack,
//  - reads shared memory that nobody in the block has written,
//  - clashes with another thread's: same byte, at least one of them writes, not both are atomic,
//    and no barrier lies between them. No barrier ever lies between two blocks.
// This does not depend on the order in which the threads happen to run.
#include <algorithm>
#include <vector>

#include "scheduler.h"

namespace cuda_on_host {

namespace {

enum Kind { read, write, atomic, kinds };
const char* const verbs[kinds] = {"reads", "writes", "atomically changes"};
constexpr int several = -2;

struct Access {  // the latest of its kind to a byte
    int block = -1, interval, thread;
    bool by_other_blocks = false;

    void record() {
        bool same_interval = block == running.block && interval == running.interval;
        by_other_blocks |= block >= 0 && block != running.block;
        thread = same_interval && thread != running.thread ? several : running.thread;
        block = running.block;
        interval = running.interval;
    }
    bool from_other_block() const {
        return block >= 0 && (by_other_blocks || block != running.block);
    }
    bool from_other_thread() const {
        return block == running.block && interval == running.interval && thread != running.thread;
    }
};

struct Cell {
    Access latest[kinds];
};

struct Watched {
    Memory memory;
    std::vector<Cell> cells;  // one a byte
};

std::vector<Watched> arrays;
Watched shared;
Memory library;
const void* guilty;
long long moved[kinds][2];  // bytes of arrays and of shared memory

[[noreturn]] void report(std::string what, const void* instruction) {
    guilty = instruction;
    fail((thread_name(running.thread) + " of " + block_name(running.block) + " " + what).c_str());
}

std::string name_of(const Watched& where) {
    if (&where == &shared) return "shared memory";
    return "array " + std::to_string(&where - arrays.data());
}

std::string name_byte(const Watched& where, size_t offset) {
    return "byte " + std::to_string(offset) + " of " + name_of(where);
}

std::string nearest_array(const char* address) {
    std::string name = "with no array watched";
    long long nearest = -1;
    for (const Watched& array : arrays) {
        const char *start = array.memory.start, *end = start + array.memory.bytes;
        bool before = address < start;
        long long distance = before ? start - address : std::max(address - end, 0l);
        if (nearest >= 0 && distance >= nearest) continue;
        nearest = distance;
        name = std::to_string(distance) + (before ? " bytes before " : " bytes past the end of ") +
               name_of(array);
    }
    return name;
}

Watched* find(const void* address, size_t bytes) {
    if (shared.memory.holds(address, bytes)) return &shared;
    for (Watched& array : arrays)
        if (array.memory.holds(address, bytes)) return &array;
    return nullptr;
}

void check(Kind kind, const Watched& where, size_t offset, const void* instruction) {
    const Cell& cell = where.cells[offset];
    bool written = cell.latest[write].block >= 0 || cell.latest[atomic].block >= 0;
    if (kind != write && &where == &shared && !written)
        report("reads " + name_byte(where, offset) + ", which nobody has written", instruction);
    for (Kind earlier : {read, write, atomic}) {
        if (earlier == kind && kind != write) continue;
        const Access& other = cell.latest[earlier];
        if (!other.from_other_block() && !other.from_other_thread()) continue;
        std::string who = other.from_other_block()  ? "another block"
                          : other.thread == several ? "another thread"
                                                    : thread_name(other.thread);
        report(std::string(verbs[kind]) + " " + name_byte(where, offset) + ", which " + who + " " +
                   verbs[earlier] + " with no barrier in between",
               instruction);
    }
}

void note(Kind kind, const void* address, size_t bytes, const void* instruction) {
    if (!running.active || running.stack.holds(address, bytes)) return;
    if (kind == read && library.holds(address, bytes)) return;
    Watched* where = find(address, bytes);
    auto at = static_cast<const char*>(address);
    if (!where)
        report(std::string(verbs[kind]) + " " + std::to_string(bytes) + " bytes out of bounds, " +
                   nearest_array(at),
               instruction);
    moved[kind][where == &shared] += bytes;
    for (size_t i = 0; i < bytes; ++i) {
        size_t offset = at + i - where->memory.start;
        check(kind, *where, offset, instruction);
        where->cells[offset].latest[kind].record();
    }
}

}  // namespace

void start_launch(Memory whole_library) {
    library = whole_library;
    guilty = nullptr;
    for (auto& places : moved) places[0] = places[1] = 0;
    for (Watched& array : arrays) array.cells.assign(array.memory.bytes, {});
}

void start_block(Memory memory) {
    shared.memory = memory;
    shared.cells.assign(memory.bytes, {});
}

void note_atomic(void* address, size_t bytes, const void* instruction) {
    note(atomic, address, bytes, instruction);
}

}  // namespace cuda_on_host

using namespace cuda_on_host;

EXPORT void watch_memory(const char* start, size_t bytes) {
    arrays.push_back({{start, bytes}, {}});
}
EXPORT void forget_memory() { arrays.clear(); }
EXPORT long long bytes_moved(int kind, int in_shared) { return moved[kind][in_shared]; }

EXPORT const void* guilty_instruction() {
    return static_cast<const char*>(guilty) - (guilty ? size_t(library.start) : 0);
}

#define CALLED(name, kind, bytes, ...)                         \
    extern "C" void __tsan_##name(void* address, ##__VA_ARGS__) { \
        note(kind, address, bytes, __builtin_return_address(0)); \
    }
#define OF_SIZE(kind, bytes)            \
    CALLED(kind##bytes, kind, bytes)    \
    CALLED(unaligned_##kind##bytes, kind, bytes)
#define OF_KIND(kind)                                                                     \
    OF_SIZE(kind, 1) OF_SIZE(kind, 2) OF_SIZE(kind, 4) OF_SIZE(kind, 8) OF_SIZE(kind, 16) \
    CALLED(kind##_range, kind, bytes, size_t bytes)
OF_KIND(read)
OF_KIND(write)
extern "C" void __tsan_init() {}
extern "C" void __tsan_func_entry(void*) {}
extern "C" void __tsan_func_exit() {}
