// The PTX instructions that our kernels use, as C++ for the host harness: translate.py writes a call
// for every instruction. A register is an unsigned integer of its width and a predicate a bool; an
// instruction's type says how the bits are read. What NVIDIA leaves undefined is not defined here.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>

namespace ptx {

typedef uint8_t u8, b8;
typedef uint16_t u16, b16;
typedef uint32_t u32, b32;
typedef uint64_t u64, b64;
typedef int8_t s8;
typedef int16_t s16;
typedef int32_t s32;
typedef int64_t s64;
typedef float f32;
typedef double f64;
typedef bool pred;

#define INSTRUCTION template <class T> __forceinline__ T
#define PTX_PLACE int line = __builtin_LINE()

// The low bits of an operand as a value of type T.
template <class T, class Operand>
__forceinline__ T as(Operand operand) {
    static_assert(sizeof(T) <= sizeof(Operand), "the register is narrower than the type");
    T value;
    memcpy(&value, &operand, sizeof(T));
    return value;
}
// A register takes an integer sign- or zero-extended, a float bit by bit.
template <class Register, class T>
__forceinline__ void set(Register& to, T value) {
    if constexpr (std::is_floating_point_v<T>)
        memcpy(&to, &value, sizeof(T));
    else
        to = Register(value);
}

template <class T> struct Twice;
template <> struct Twice<u16> { typedef u32 type; };
template <> struct Twice<s16> { typedef s32 type; };
template <> struct Twice<u32> { typedef u64 type; };
template <> struct Twice<s32> { typedef s64 type; };
template <> struct Twice<u64> { typedef unsigned __int128 type; };
template <> struct Twice<s64> { typedef __int128 type; };
template <class T> using twice = typename Twice<T>::type;
template <class T> constexpr int bits = 8 * sizeof(T);

// --- arithmetic: integers wrap, floats round once per operation ------------------------------------
#define ARITHMETIC(name, symbol)                                                \
    INSTRUCTION name(T a, T b) {                                                \
        if constexpr (std::is_floating_point_v<T>) return a symbol b;           \
        else return T(u64(a) symbol u64(b));                                    \
    }
ARITHMETIC(add, +)
ARITHMETIC(sub, -)
ARITHMETIC(mul, *)
INSTRUCTION div(T a, T b) { return a / b; }
INSTRUCTION rem(T a, T b) { return a % b; }
INSTRUCTION min_(T a, T b) {
    if constexpr (std::is_floating_point_v<T>) return std::fmin(a, b);
    else return b < a ? b : a;
}
INSTRUCTION max_(T a, T b) {
    if constexpr (std::is_floating_point_v<T>) return std::fmax(a, b);
    else return a < b ? b : a;
}
INSTRUCTION mul_hi(T a, T b) { return T(twice<T>(a) * b >> bits<T>); }
template <class T>
__forceinline__ twice<T> mul_wide(T a, T b) { return twice<T>(a) * twice<T>(b); }
INSTRUCTION mad(T a, T b, T c) { return add<T>(mul<T>(a, b), c); }
template <class T>
__forceinline__ twice<T> mad_wide(T a, T b, twice<T> c) {
    return add<twice<T>>(mul_wide<T>(a, b), c);
}
INSTRUCTION fma(T a, T b, T c) { return std::fma(a, b, c); }
INSTRUCTION neg(T a) {
    if constexpr (std::is_floating_point_v<T>) return -a;
    else return T(-u64(a));
}
INSTRUCTION abs_(T a) { return a < 0 ? neg<T>(a) : a; }

// --- bits --------------------------------------------------------------------------------------------
INSTRUCTION and_(T a, T b) { return a & b; }
INSTRUCTION or_(T a, T b) { return a | b; }
INSTRUCTION xor_(T a, T b) { return a ^ b; }
INSTRUCTION not_(T a) {
    if constexpr (std::is_same_v<T, bool>) return !a;
    else return ~a;
}
INSTRUCTION shl(T a, u32 by) { return by < bits<T> ? T(u64(a) << by) : T(0); }
INSTRUCTION shr(T a, u32 by) { return a >> (by < bits<T> ? by : bits<T> - 1) >> (by >= bits<T>); }
template <class T> __forceinline__ u32 popc(T a) { return __builtin_popcountll(a); }
template <class T> __forceinline__ u32 clz(T a) {
    return a ? __builtin_clzll(a) - (64 - bits<T>) : bits<T>;
}
INSTRUCTION bfi(T from, T into, u32 at, u32 length) {
    at &= 255, length &= 255;
    T ones = shl<T>(length < bits<T> ? (T(1) << length) - 1 : T(~T(0)), at);
    return (into & ~ones) | (shl<T>(from, at) & ones);
}
INSTRUCTION bfe(T from, u32 at, u32 length) {
    at &= 255, length &= 255;
    T result = 0;
    for (u32 i = 0; i < bits<T>; ++i) {
        u32 last = min(at + length - 1, u32(bits<T> - 1));
        bool inside = i < length && at + i < bits<T>;
        bool sign = std::is_signed_v<T> && length && (u64(from) >> last & 1);
        if (inside ? u64(from) >> (at + i) & 1 : sign) result = T(result | T(1) << i);
    }
    return result;
}
__forceinline__ u32 prmt(u32 a, u32 b, u32 selector) {
    u64 bytes = u64(b) << 32 | a;
    u32 result = 0;
    for (int i = 0; i < 4; ++i) {
        u32 choice = selector >> 4 * i & 15;
        u32 byte = bytes >> 8 * (choice & 7) & 255;
        if (choice & 8) byte = byte & 128 ? 255 : 0;
        result |= byte << 8 * i;
    }
    return result;
}
__forceinline__ u32 lop3(u32 a, u32 b, u32 c, u32 table) {
    u32 result = 0;
    for (int i = 0; i < 32; ++i)
        result |= (table >> ((a >> i & 1) << 2 | (b >> i & 1) << 1 | (c >> i & 1)) & 1) << i;
    return result;
}
__forceinline__ u32 shf_l(u32 low, u32 high, u32 by) { return (u64(high) << 32 | low) << by >> 32; }
__forceinline__ u32 shf_r(u32 low, u32 high, u32 by) { return (u64(high) << 32 | low) >> by; }
// Two products of a 16-bit half of `a` and a byte of `b`: of the lower bytes, or the upper ones.
template <class A, class B, int first>
__forceinline__ u32 dp2a(u32 a, u32 b, u32 c) {
    for (int i = 0; i < 2; ++i)
        c += u32(std::conditional_t<std::is_signed_v<A>, s16, u16>(a >> 16 * i)) *
             u32(std::conditional_t<std::is_signed_v<B>, s8, u8>(b >> 8 * (first + i)));
    return c;
}
template <class A, class B>
__forceinline__ u32 dp4a(u32 a, u32 b, u32 c) {
    for (int i = 0; i < 4; ++i)
        c += u32(std::conditional_t<std::is_signed_v<A>, s8, u8>(a >> 8 * i)) *
             u32(std::conditional_t<std::is_signed_v<B>, s8, u8>(b >> 8 * i));
    return c;
}

// --- comparison: false if a float is NaN; the names with a u are true then --------------------------
#define COMPARISON(name, symbol)                                                            \
    template <class T> __forceinline__ bool name(T a, T b) { return a symbol b; }           \
    template <class T> __forceinline__ bool name##u(T a, T b) {                             \
        return a != a || b != b || a symbol b;                                              \
    }
COMPARISON(eq, ==)
COMPARISON(lt, <)
COMPARISON(le, <=)
COMPARISON(gt, >)
COMPARISON(ge, >=)
template <class T> __forceinline__ bool ne(T a, T b) { return a < b || b < a; }
template <class T> __forceinline__ bool neu(T a, T b) { return a != b; }
// Names for unsigned integers.
template <class T> __forceinline__ bool lo(T a, T b) { return a < b; }
template <class T> __forceinline__ bool ls(T a, T b) { return a <= b; }
template <class T> __forceinline__ bool hi(T a, T b) { return a > b; }
template <class T> __forceinline__ bool hs(T a, T b) { return a >= b; }
INSTRUCTION selp(T a, T b, bool first) { return first ? a : b; }

// --- conversion: floats to integers saturate, NaN becomes 0 -----------------------------------------
template <class To, class From>
__forceinline__ To cvt(From a) { return To(a); }
template <class To, class From>
__forceinline__ To cvt_to_integer(From rounded) {
    if (rounded != rounded) return 0;
    if (rounded < From(std::numeric_limits<To>::min())) return std::numeric_limits<To>::min();
    if (rounded >= std::ldexp(From(1), std::numeric_limits<To>::digits))
        return std::numeric_limits<To>::max();
    return To(rounded);
}
template <class To, class From> __forceinline__ To cvt_rzi(From a) {
    return cvt_to_integer<To>(std::trunc(a));
}
template <class To, class From> __forceinline__ To cvt_rni(From a) {
    return cvt_to_integer<To>(std::nearbyint(a));
}
template <class To, class From> __forceinline__ To cvt_rmi(From a) {
    return cvt_to_integer<To>(std::floor(a));
}
template <class To, class From> __forceinline__ To cvt_rpi(From a) {
    return cvt_to_integer<To>(std::ceil(a));
}
template <class To, class From> __forceinline__ To cvt_sat(From a) {
    To low = std::numeric_limits<To>::min(), high = std::numeric_limits<To>::max();
    return __int128(a) < low ? low : __int128(a) > high ? high : To(a);
}

INSTRUCTION sqrt(T a) { return std::sqrt(a); }
INSTRUCTION rcp(T a) { return 1 / a; }

// Half precision and bfloat16 as their bits, rounded to nearest even; NaN is 0x7fff.
inline u16 to_f16(f32 value) {
    u32 x = as<u32>(value), sign = x >> 16 & 0x8000;
    x &= 0x7fffffff;
    if (x > 0x7f800000) return 0x7fff;
    if (x >= 0x477ff000) return sign | 0x7c00;  // from 65520 on
    if (x < 0x38800000) return sign | u32(std::nearbyint(std::ldexp(double(std::fabs(value)), 24)));
    return sign | ((x + 0xfff + (x >> 13 & 1)) >> 13) - (112 << 10);
}
inline f32 from_f16(u16 bits) {
    int exponent = bits >> 10 & 31, fraction = bits & 1023;
    f32 size = exponent == 31 ? (fraction ? NAN : INFINITY)
               : exponent     ? std::ldexp(f32(1024 + fraction), exponent - 25)
                              : std::ldexp(f32(fraction), -24);
    return bits & 0x8000 ? -size : size;
}
inline u16 to_bf16(f32 value) {
    u32 x = as<u32>(value);
    return value != value ? 0x7fff : (x + 0x7fff + (x >> 16 & 1)) >> 16;
}
inline f32 from_bf16(u16 bits) { return as<f32>(u32(bits) << 16); }

// --- memory: the racecheck build checks bounds and races, this the alignment -------------------------
[[noreturn]] inline void refuse(const char* what, u64 address, size_t size, int line) {
    static char message[200];
    snprintf(message, sizeof message,
             "thread (%u, %u, %u) of block (%u, %u, %u) accesses %zu bytes at %#llx, %s (PTX line %d)",
             threadIdx.x, threadIdx.y, threadIdx.z, blockIdx.x, blockIdx.y, blockIdx.z, size,
             (unsigned long long)address, what, line);
    cuda_on_host::fail(message);
}
// The address of a vector of `count` values; aligned to all of it, as a GPU wants.
template <class T, int count = 1>
__forceinline__ T* global(u64 address, PTX_PLACE) {
    if (address % (count * sizeof(T))) refuse("which is not aligned", address, count * sizeof(T), line);
    return reinterpret_cast<T*>(address);
}
// Shared addresses count from the start of the block's shared memory.
template <class T, int count = 1, size_t n>
__forceinline__ T* shared(u8 (&memory)[n], u64 address, PTX_PLACE) {
    size_t size = count * sizeof(T);
    if (address % size) refuse("which is not aligned", address, size, line);
    if (address > n || address + size > n)
        refuse("past the end of its shared memory", address, size, line);
    return reinterpret_cast<T*>(memory + address);
}

#define PTX_ATOMIC(name, combined)                                                          \
    template <class T> __forceinline__ T atom_##name(T* address, T value) {                 \
        return cuda_on_host::atomically(address, [=](T old) -> T { return combined; });     \
    }
PTX_ATOMIC(add, add<T>(old, value))
PTX_ATOMIC(min, min_<T>(old, value))
PTX_ATOMIC(max, max_<T>(old, value))
PTX_ATOMIC(and, old & value)
PTX_ATOMIC(or, old | value)
PTX_ATOMIC(xor, old ^ value)
PTX_ATOMIC(exch, value)
template <class T> __forceinline__ T atom_cas(T* address, T expected, T value) {
    return cuda_on_host::atomically(address, [=](T old) { return old == expected ? value : old; });
}

// --- warps -------------------------------------------------------------------------------------------
struct Shuffled {
    u32 value;
    bool inside;
};
enum Shuffle { up, down, bfly, idx };
template <Shuffle mode>
__forceinline__ Shuffled shfl(u32 value, u32 by, u32 clamp_and_segment, u32 mask, PTX_PLACE) {
    int lane = cuda_on_host::lane_index(), step = by & 31;
    int segment = clamp_and_segment >> 8 & 31, clamp = clamp_and_segment & 31;
    int last = (lane & segment) | (clamp & ~segment);
    int from = mode == up     ? lane - step
               : mode == down ? lane + step
               : mode == bfly ? lane ^ step
                              : (lane & segment) | (step & ~segment);
    bool inside = mode == up ? from >= last : from <= last;
    return {cuda_on_host::from_lane(mask, value, inside ? from : lane, {"PTX", line}), inside};
}

}  // namespace ptx
