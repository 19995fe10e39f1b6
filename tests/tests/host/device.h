// Threads of a kernel on a processor that is no GPU: a process for each block, so that what a block shares is a variable,
// and a thread for each of its threads. Memory that ranks share is mapped before the processes are made.

#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cmath>
#include <ctime>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#define __device__
#define __global__
#define __shared__ static
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __grid_constant__
#define __launch_bounds__(...)

struct Dim {
    unsigned x, y, z;
};
static thread_local Dim threadIdx;
// Memory of both ranks, and the address at which the switch has it: nothing lies there.
static char *united[2];
static char *const united_base = (char *)(1ull << 44);

static Dim blockIdx, gridDim, blockDim;

// A barrier of the threads that have not left.
struct Meeting {
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t all = PTHREAD_COND_INITIALIZER;
    unsigned expected = 0, come = 0, past = 0;

    void open() {
        come = 0, ++past;
        pthread_cond_broadcast(&all);
    }
    void wait() {
        pthread_mutex_lock(&lock);
        const unsigned now = past;
        if (++come >= expected) open();
        while (now == past) pthread_cond_wait(&all, &lock);
        pthread_mutex_unlock(&lock);
    }
    void leave() {
        pthread_mutex_lock(&lock);
        if (--expected > 0 && come >= expected) open();
        pthread_mutex_unlock(&lock);
    }
};
static Meeting of_block, of_warp[16];
static thread_local jmp_buf end_of_thread;

static void __syncthreads() { of_block.wait(); }
static void __syncwarp() { of_warp[threadIdx.x / 32].wait(); }

template <class TO, class FROM> static TO bits(FROM from) {
    TO to;
    static_assert(sizeof to == sizeof from, "the same bits");
    memcpy(&to, &from, sizeof to);
    return to;
}
static float __uint_as_float(unsigned x) { return bits<float>(x); }
static unsigned __float_as_uint(float x) { return bits<unsigned>(x); }
static double __longlong_as_double(long long x) { return bits<double>(x); }
static long long __double_as_longlong(double x) { return bits<long long>(x); }
static float __double2float_rn(double x) { return (float)x; }
static float __fadd_rn(float a, float b) { return a + b; }
static double __dadd_rn(double a, double b) { return a + b; }
static float __fmul_rn(float a, float b) { return a * b; }
static double __dmul_rn(double a, double b) { return a * b; }
static float __fdiv_rn(float a, float b) { return a / b; }
static double __ddiv_rn(double a, double b) { return a / b; }

static char *shared_memory(size_t bytes) {
    void *at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) abort();
    return (char *)at;
}

typedef void (*Kernel)(const void *);
static Kernel the_kernel;
static const void *the_argument;

static void *run_thread(void *number) {
    threadIdx = {(unsigned)(size_t)number, 0, 0};
    if (setjmp(end_of_thread) == 0) the_kernel(the_argument);
    of_block.leave();
    of_warp[threadIdx.x / 32].leave();
    return nullptr;
}

// Begins a block of a launch.
static pid_t begin_block(Kernel kernel, const void *argument, unsigned block, unsigned blocks, unsigned threads) {
    fflush(stdout);
    const pid_t child = fork();
    if (child != 0) return child;
    the_kernel = kernel, the_argument = argument;
    blockIdx = {block, 0, 0}, gridDim = {blocks, 1, 1}, blockDim = {threads, 1, 1};
    of_block.expected = threads;
    for (unsigned t = 0; t < threads; ++t) ++of_warp[t / 32].expected;
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 128 << 10);
    std::vector<pthread_t> all(threads);
    for (unsigned t = 0; t < threads; ++t)
        if (pthread_create(&all[t], &small, run_thread, (void *)(size_t)t) != 0) _exit(9);
    for (pthread_t one : all) pthread_join(one, nullptr);
    _exit(0);
}

// Whether all blocks have ended well.
static bool end_blocks(const std::vector<pid_t> &blocks) {
    bool well = true;
    for (pid_t block : blocks) {
        int status = 0;
        waitpid(block, &status, 0);
        well = well && status == 0;
    }
    return well;
}

// Prints what a rank's kernel has reported, if it has.
template <class Report> static void print_report(unsigned rank, const Report &report) {
    if (report.what != 0)
        printf("rank %u: report %u, word %u, peer %u, wanted %llu, seen %llu\n", rank, report.what, report.word, report.peer,
               report.wanted, report.seen);
}
