// CUDA for the host's C++ compiler, included ahead of an unmodified .cu file. The threads of a
// block are fibers that switch only at a barrier; blocks run one after another (scheduler.cpp).
// In the racecheck build every access to memory is checked as well (racecheck.cpp).
#pragma once

#include <cstddef>
#include <cstring>
#include <type_traits>
#include <utility>

#define __global__
#define __device__
#define __host__
#define __constant__ static const
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __restrict__ __restrict
#define __align__(n) alignas(n)
// All thread-local variables of the library lie together, so that the scheduler can find and poison
// them whatever function or template they are in; and the fibers of a block share one OS thread.
#define __shared__ thread_local

// For what looks at memory on behalf of the harness, not of the kernel.
#define HARNESS __attribute__((no_sanitize("thread"), noinline))

struct uint3 {
    unsigned x, y, z;
};
struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};
extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;
constexpr int warpSize = 32;

#define VECTOR_TYPES(base, name)                                        \
    struct alignas(2 * sizeof(base)) name##2 { base x, y; };            \
    struct name##3 { base x, y, z; };                                   \
    struct alignas(4 * sizeof(base)) name##4 { base x, y, z, w; };
VECTOR_TYPES(unsigned char, uchar)
VECTOR_TYPES(unsigned short, ushort)
VECTOR_TYPES(int, int)
VECTOR_TYPES(float, float)
#undef VECTOR_TYPES
struct alignas(8) uint2 {
    unsigned x, y;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};

template <class A, class B>
constexpr std::common_type_t<A, B> min(A a, B b) { return b < a ? b : a; }
template <class A, class B>
constexpr std::common_type_t<A, B> max(A a, B b) { return a < b ? b : a; }
inline int __popc(unsigned v) { return __builtin_popcount(v); }
inline int __ffs(int v) { return __builtin_ffs(v); }
inline int __clz(int v) { return v ? __builtin_clz(v) : 32; }
template <class T>
T __ldg(const T* p) { return *p; }

namespace cuda_on_host {

struct Place {  // in the kernel's source
    const char* file;
    int line;
};

struct Brought {  // to a warp barrier
    const unsigned long long* by_lane;
    unsigned lanes;  // those of the mask that exist and had not exited
};

// Waits for all threads of the block that have not exited; the sum of what they brought along.
int wait_for_block(int value, Place place);
Brought wait_for_warp(unsigned mask, unsigned long long value, Place place);
unsigned lane_index();
[[noreturn]] void fail(const char* message);
void note_atomic(void* address, size_t bytes, const void* instruction);

template <class T, class Change>
HARNESS T atomically(T* address, Change change) {
    note_atomic(address, sizeof(T), __builtin_return_address(0));
    T old = *address;
    *address = change(old);
    return old;
}

template <class T>
T from_lane(unsigned mask, T value, unsigned lane, Place place) {
    static_assert(sizeof(T) <= 8, "a shuffle moves up to 8 bytes");
    unsigned long long bits = 0;
    memcpy(&bits, &value, sizeof(T));
    Brought brought = wait_for_warp(mask, bits, place);
    if (!(brought.lanes >> lane & 1)) fail("a shuffle reads a lane that does not take part in it");
    memcpy(&value, &brought.by_lane[lane], sizeof(T));
    return value;
}

template <class Combine>
unsigned over_lanes(unsigned mask, unsigned value, unsigned start, Combine combine, Place place) {
    Brought brought = wait_for_warp(mask, value, place);
    for (unsigned lane = 0; lane < 32; ++lane) {
        unsigned one = unsigned(brought.by_lane[lane]);
        if (brought.lanes >> lane & 1) start = combine(start, one, lane);
    }
    return start;
}

struct Kernel {
    const char* name;
    const char* kinds;        // a letter an argument: p(ointer), f(loat), i(nteger), s(truct)
    const size_t* sizes;      // bytes of each argument
    int most_threads;         // __launch_bounds__
    void (*call)(void**);     // takes a pointer to each argument, as cuLaunchKernel does
};
void add_kernel(Kernel kernel);

template <class T>
constexpr char kind = std::is_pointer_v<T>          ? 'p'
                      : std::is_floating_point_v<T> ? 'f'
                      : std::is_class_v<T>          ? 's'
                                                    : 'i';

template <auto function>
struct Trampoline;
template <class... A, void (*function)(A...)>
struct Trampoline<function> {
    static constexpr char kinds[] = {kind<A>..., '\0'};
    static constexpr size_t sizes[] = {sizeof(A)..., 0};

    template <size_t... i>
    HARNESS static void spread(void** arguments, std::index_sequence<i...>) {
        function(*static_cast<A*>(arguments[i])...);
    }
    HARNESS static void call(void** arguments) {
        spread(arguments, std::index_sequence_for<A...>());
    }
    Trampoline(const char* name, int most_threads) {
        add_kernel({name, kinds, sizes, most_threads, call});
    }
};

}  // namespace cuda_on_host

// The line of the caller tells barriers apart: all threads of a block must wait at the same one.
#define PLACE cuda_on_host::Place place = {__builtin_FILE(), __builtin_LINE()}

inline void __syncthreads(PLACE) { cuda_on_host::wait_for_block(0, place); }
inline int __syncthreads_count(int v, PLACE) { return cuda_on_host::wait_for_block(v != 0, place); }
inline int __syncthreads_or(int v, PLACE) {
    return cuda_on_host::wait_for_block(v != 0, place) != 0;
}
inline int __syncthreads_and(int v, PLACE) {
    return cuda_on_host::wait_for_block(v == 0, place) == 0;
}
inline void __threadfence() {}
inline void __threadfence_block() {}

// Orders the lanes, but the race check does not know that: it asks for __syncthreads.
inline void __syncwarp(unsigned mask = ~0u, PLACE) { cuda_on_host::wait_for_warp(mask, 0, place); }

template <class T>
T __shfl_sync(unsigned mask, T value, int lane, int width = 32, PLACE) {
    unsigned base = cuda_on_host::lane_index() & ~(width - 1);
    return cuda_on_host::from_lane(mask, value, base + (lane & (width - 1)), place);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32, PLACE) {
    unsigned lane = cuda_on_host::lane_index(), other = lane ^ bits;
    bool inside = other < (lane & ~(width - 1)) + width;
    return cuda_on_host::from_lane(mask, value, inside ? other : lane, place);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32, PLACE) {
    unsigned lane = cuda_on_host::lane_index();
    bool inside = (lane & (width - 1)) >= delta;
    return cuda_on_host::from_lane(mask, value, inside ? lane - delta : lane, place);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32, PLACE) {
    unsigned lane = cuda_on_host::lane_index();
    bool inside = (lane & (width - 1)) + delta < unsigned(width);
    return cuda_on_host::from_lane(mask, value, inside ? lane + delta : lane, place);
}

#define OVER_LANES(name, result, argument, start, combined)                                  \
    inline result name(unsigned mask, argument value, PLACE) {                               \
        auto combine = [](unsigned all, unsigned one, unsigned lane) -> unsigned {           \
            (void)lane;                                                                      \
            return combined;                                                                 \
        };                                                                                   \
        return result(cuda_on_host::over_lanes(mask, unsigned(value), start, combine, place)); \
    }
OVER_LANES(__ballot_sync, unsigned, int, 0u, all | unsigned(one != 0) << lane)
OVER_LANES(__any_sync, int, int, 0u, all | (one != 0))
OVER_LANES(__all_sync, int, int, 1u, all & (one != 0))
OVER_LANES(__reduce_add_sync, unsigned, unsigned, 0u, all + one)
OVER_LANES(__reduce_or_sync, unsigned, unsigned, 0u, all | one)
OVER_LANES(__reduce_and_sync, unsigned, unsigned, ~0u, all & one)
OVER_LANES(__reduce_min_sync, unsigned, unsigned, ~0u, min(all, one))
OVER_LANES(__reduce_max_sync, unsigned, unsigned, 0u, max(all, one))
#undef OVER_LANES
#undef PLACE

// The second type is deduced on its own, so that atomicAdd(&unsigned_counter, 1) works as in CUDA.
#define ATOMIC(name, changed)                                                              \
    template <class T, class U>                                                            \
    __forceinline__ T name(T* address, U operand) {                                        \
        T value = operand;                                                                 \
        return cuda_on_host::atomically(address, [value](T old) -> T { return changed; }); \
    }
ATOMIC(atomicAdd, old + value)
ATOMIC(atomicSub, old - value)
ATOMIC(atomicMin, min(old, value))
ATOMIC(atomicMax, max(old, value))
ATOMIC(atomicAnd, old & value)
ATOMIC(atomicOr, old | value)
ATOMIC(atomicXor, old ^ value)
ATOMIC(atomicExch, value)
ATOMIC(atomicInc, old >= value ? 0 : old + 1)
ATOMIC(atomicDec, old == 0 || old > value ? value : old - 1)
#undef ATOMIC
template <class T>
__forceinline__ T atomicCAS(T* address, T expected, T value) {
    return cuda_on_host::atomically(address, [=](T old) { return old == expected ? value : old; });
}
