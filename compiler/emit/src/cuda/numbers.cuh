
// Formats and operators, with the arithmetic of the host to the bit, on top of `prelude.cuh`.

// ---- formats ---------------------------------------------------------------------------------------------

// How a value lies in memory (`Bits`) and what it is computed with (`load`, `store`). Roundings are to nearest, ties
// to even; a NaN stays one.

struct F32 {
    static constexpr u32 BYTES = 4;
    static INLINE float load(u32 bits) { return __uint_as_float(bits); }
    static INLINE u32 store(float value) { return __float_as_uint(value); }
    static INLINE u32 store(double value) { return __float_as_uint(__double2float_rn(value)); }
};

// Rounds so that a second rounding to 16 bits is as if it were the only one: where the value is not exact, the
// last bit is set in place of rounding.
INLINE float round_to_odd(double value) {
    const float nearest = __double2float_rn(value);
    const u32 away = fabs((double)nearest) > fabs(value);
    const u32 inexact = (double)nearest != value;
    return __uint_as_float(__float_as_uint(nearest) - away | inexact);
}

struct F16 {
    static constexpr u32 BYTES = 2;
    static INLINE float load(u32 bits) { return f16_to_f32(bits); }
    static INLINE u32 store(float value) { return f32_to_f16(value); }
    static INLINE u32 store(double value) { return f32_to_f16(round_to_odd(value)); }
};

struct Bf16 {
    static constexpr u32 BYTES = 2;
    static INLINE float load(u32 bits) { return __uint_as_float(bits << 16); }
    static INLINE u32 store(float value) { return f32_to_bf16(value); }
    static INLINE u32 store(double value) { return f32_to_bf16(round_to_odd(value)); }
};

struct F64 {
    static constexpr u32 BYTES = 8;
    static INLINE double load(u64 bits) { return __longlong_as_double((i64)bits); }
    static INLINE u64 store(double value) { return (u64)__double_as_longlong(value); }
};

// Integers are computed with in registers of 32 or 64 bits; what is too much for the element is cut off when stored,
// which wraps, step by step or at the end alike.
template <class VALUE, u32 SIZE_OF, class BITS> struct Int {
    static constexpr u32 BYTES = SIZE_OF;
    static INLINE VALUE load(BITS bits) { return (VALUE)bits; }
    static INLINE BITS store(VALUE value) { return (BITS)value; }
};
struct I8 : Int<i32, 1, u32> {
    static INLINE i32 load(u32 bits) { return (i32)(signed char)bits; }
};
struct U8 : Int<u32, 1, u32> {};
struct I32 : Int<i32, 4, u32> {};
struct U32 : Int<u32, 4, u32> {};
struct I64 : Int<i64, 8, u64> {};
struct U64 : Int<u64, 8, u64> {};

// Some values on their protocol through a fold.
template <class VALUE, u32 COUNT> struct Values {
    VALUE v[COUNT];
};

template <class FORMAT, class VALUE, u32 COUNT>
INLINE Values<VALUE, COUNT> widen(const Piece<FORMAT::BYTES * COUNT> &x) {
    Values<VALUE, COUNT> y;
    EACH(COUNT, {
        if constexpr (FORMAT::BYTES == 8)
            y.v[k] = (VALUE)FORMAT::load((u64)x.w[2 * k + 1] << 32 | x.w[2 * k]);
        else if constexpr (FORMAT::BYTES == 4)
            y.v[k] = (VALUE)FORMAT::load(x.w[k]);
        else if constexpr (FORMAT::BYTES == 2)
            y.v[k] = (VALUE)FORMAT::load(x.w[k / 2] >> 16 * (k % 2) & 0xffff);
        else
            y.v[k] = (VALUE)FORMAT::load(x.w[k / 4] >> 8 * (k % 4) & 0xff);
    })
    return y;
}

template <class FORMAT, class VALUE, u32 COUNT>
INLINE Piece<FORMAT::BYTES * COUNT> narrow(const Values<VALUE, COUNT> &x) {
    Piece<FORMAT::BYTES * COUNT> y;
    EACH(sizeof(y.w) / 4, y.w[k] = 0)
    EACH(COUNT, {
        const auto bits = FORMAT::store(x.v[k]);
        if constexpr (FORMAT::BYTES == 8)
            y.w[2 * k] = (u32)bits, y.w[2 * k + 1] = (u32)(bits >> 32);
        else if constexpr (FORMAT::BYTES == 4)
            y.w[k] = bits;
        else if constexpr (FORMAT::BYTES == 2)
            y.w[k / 2] |= (bits & 0xffff) << 16 * (k % 2);
        else
            y.w[k / 4] |= (bits & 0xff) << 8 * (k % 4);
    })
    return y;
}

// A piece whose place is not aligned to more than an element, or that the chunk does not fill: element by element.
template <u32 BYTES> INLINE Piece<BYTES> gather(u64 at, u64 elements) {
    Piece<BYTES> x;
    EACH(BYTES / 4, x.w[k] = 0)
    EACH(BYTES / SIZE, if (k < elements) {
        const Piece<SIZE> e = fetch<SIZE>(at + SIZE * k);
        if constexpr (SIZE == 8) x.w[2 * k] = e.w[0], x.w[2 * k + 1] = e.w[1];
        else x.w[k * SIZE / 4] |= e.w[0] << 8 * (k * SIZE % 4);
    })
    return x;
}

template <u32 BYTES> INLINE void scatter(u64 at, const Piece<BYTES> &x, u64 elements) {
    EACH(BYTES / SIZE, if (k < elements) {
        Piece<SIZE> e;
        if constexpr (SIZE == 8) e.w[0] = x.w[2 * k], e.w[1] = x.w[2 * k + 1];
        else e.w[0] = x.w[k * SIZE / 4] >> 8 * (k * SIZE % 4);
        put(at + SIZE * k, e);
    })
}

// ---- operators -------------------------------------------------------------------------------------------

// Each combines the value so far with the next operand. Nothing is contracted; integers wrap.
struct Sum {
    static INLINE float of(float a, float b) { return __fadd_rn(a, b); }
    static INLINE double of(double a, double b) { return __dadd_rn(a, b); }
    static INLINE u32 of(u32 a, u32 b) { return a + b; }
    static INLINE i32 of(i32 a, i32 b) { return (i32)((u32)a + (u32)b); }
    static INLINE u64 of(u64 a, u64 b) { return a + b; }
    static INLINE i64 of(i64 a, i64 b) { return (i64)((u64)a + (u64)b); }
};

struct Prod {
    static INLINE float of(float a, float b) { return __fmul_rn(a, b); }
    static INLINE double of(double a, double b) { return __dmul_rn(a, b); }
    static INLINE u32 of(u32 a, u32 b) { return a * b; }
    static INLINE i32 of(i32 a, i32 b) { return (i32)((u32)a * (u32)b); }
    static INLINE u64 of(u64 a, u64 b) { return a * b; }
    static INLINE i64 of(i64 a, i64 b) { return (i64)((u64)a * (u64)b); }
};

// Of equal operands the first; if either is NaN, that one.
struct Min {
    template <class T> static INLINE T of(T a, T b) { return b < a || b != b ? b : a; }
};

struct Max {
    template <class T> static INLINE T of(T a, T b) { return b > a || b != b ? b : a; }
};

struct And {
    template <class T> static INLINE T of(T a, T b) { return a & b; }
};

struct Or {
    template <class T> static INLINE T of(T a, T b) { return a | b; }
};

struct Xor {
    template <class T> static INLINE T of(T a, T b) { return a ^ b; }
};

template <class OPERATOR, class VALUE, u32 COUNT>
INLINE void fold(Values<VALUE, COUNT> &so_far, const Values<VALUE, COUNT> &next) {
    EACH(COUNT, so_far.v[k] = OPERATOR::of(so_far.v[k], next.v[k]))
}

// What `premul_sum` does to each operand before, and `avg` to each result after.
INLINE float factor(double by, float) { return (float)by; }
INLINE double factor(double by, double) { return by; }
template <class T> INLINE T factor(double by, T) {
    // Through the widest type of the same sign, so that a large factor wraps like the product does.
    return by < 0 ? (T)(i64)by : by >= 0 ? (T)(u64)by : (T)0;
}

INLINE float over(float a, u32 by) { return __fdiv_rn(a, (float)by); }
INLINE double over(double a, u32 by) { return __ddiv_rn(a, (double)by); }
INLINE u32 over(u32 a, u32 by) { return a / by; }
INLINE i32 over(i32 a, u32 by) { return (i32)((i64)a / (i64)by); }
INLINE u64 over(u64 a, u32 by) { return a / by; }
INLINE i64 over(i64 a, u32 by) { return a / (i64)by; }

template <class VALUE, u32 COUNT> INLINE Values<VALUE, COUNT> multiplied(Values<VALUE, COUNT> x, VALUE by) {
    EACH(COUNT, x.v[k] = Prod::of(x.v[k], by))
    return x;
}

template <class VALUE, u32 COUNT> INLINE Values<VALUE, COUNT> divided(Values<VALUE, COUNT> x) {
    EACH(COUNT, x.v[k] = over(x.v[k], RANKS))
    return x;
}

// To the elements of this block in the first chunks of a buffer: the factor before all else, the division at
// the end. COUNT of them at a time.
enum class Own { TIMES, OVER };

template <Own WHAT, class FORMAT, class VALUE, u32 COUNT> INLINE void own(Me &me, u64 buffer, u32 chunks) {
    constexpr u32 BYTES = FORMAT::BYTES * COUNT;
    for (u64 t = 0; t < me.call.passes; ++t) {
        me.pass(t);
        for (u32 c = 0; c < chunks; ++c) {
            const u64 begin = me.chunk(buffer, c), elements = me.part(me.length(c));
            for (u64 i = me.thread; i < elements / COUNT; i += THREADS) {
                const u64 at = begin + BYTES * i;
                Values<VALUE, COUNT> x = widen<FORMAT, VALUE, COUNT>(fetch<BYTES>(at));
                x = WHAT == Own::OVER ? divided(x) : multiplied(x, factor(me.params.factor, VALUE()));
                put(at, narrow<FORMAT, VALUE, COUNT>(x));
            }
        }
    }
    me.pass(0);
}
