// Two ranks, a process each, put numbers into each other's GPU memory and wait for each other's signals, all of it in
// the GPUs' streams. Then they call as if only the first one had a GPU. Where there is none, the errors say so.
//
//   cc -std=c11 gpu.c -I ../../ffi/include -L ../../target/release -lroundelay_ffi -ldl -o gpu

#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "roundelay.h"

enum { RANKS = 2, LEN = 1000, ALL = RL_READ | RL_WRITE | RL_ATOMICS };

// What is on a GPU is said with every call; streams are those of the communicator.
static const rl_options GPU = {.memory = RL_CUDA};

static void say(uint32_t rank, const char *what, int32_t status) {
    rl_error error;
    rl_last_error(&error);
    if (status == 0) error.text = "it was not refused";
    printf("rank %u: %s: %d: %s\n", rank, what, status, error.text);
}

// A store for one note, in memory that both processes map.
struct note {
    volatile uint64_t len;
    char text[4096];
};

static int32_t set(void *context, const char *key, const void *value, uint64_t len) {
    struct note *note = context;
    (void)key;
    if (len > sizeof note->text) return 1;
    memcpy(note->text, value, len);
    __atomic_store_n(&note->len, len, __ATOMIC_RELEASE);
    return 0;
}

static int32_t get(void *context, const char *key, uint64_t timeout_ms, void *value, uint64_t capacity, uint64_t *len) {
    struct note *note = context;
    (void)key;
    for (uint64_t ms = 0; (*len = __atomic_load_n(&note->len, __ATOMIC_ACQUIRE)) == 0; ms++) {
        if (ms > timeout_ms) return 1;
        usleep(1000);
    }
    if (*len > capacity) return 1;
    memcpy(value, note->text, *len);
    return 0;
}

// The driver's functions; a program with CUDA's headers calls them, or cudaMalloc and cudaMemcpy, as they are.
static int (*cu_alloc)(uint64_t *, size_t);
static int (*cu_write)(uint64_t, const void *, size_t);
static int (*cu_read)(void *, uint64_t, size_t);

static void find_driver(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (driver == NULL) exit(1);
    *(void **)&cu_alloc = dlsym(driver, "cuMemAlloc_v2");
    *(void **)&cu_write = dlsym(driver, "cuMemcpyHtoD_v2");
    *(void **)&cu_read = dlsym(driver, "cuMemcpyDtoH_v2");
}

static void did(int result) {
    if (result == 0) return;
    fprintf(stderr, "the CUDA driver returned %d\n", result);
    exit(1);
}

static void *upload(const void *from, size_t bytes) {
    uint64_t to;
    did(cu_alloc(&to, bytes));
    did(cu_write(to, from, bytes));
    return (void *)to;
}

static void download(void *to, const void *from, size_t bytes) { did(cu_read(to, (uint64_t)from, bytes)); }

static void windows(rl_comm *hosts, rl_comm *gpus) {
    uint32_t own = rl_rank(gpus), other = 1 - own;
    uint64_t numbers[LEN], seen[LEN] = {0}, words[2];
    for (uint64_t i = 0; i < LEN; i++) numbers[i] = own * 1000000 + i;
    uint64_t *mine = upload(seen, sizeof seen), *data = upload(numbers, sizeof numbers);
    uint64_t *before = upload(seen, 2 * sizeof *before);

    rl_window *window;
    check(rl_window_create(gpus, mine, LEN, RL_U64, ALL, &GPU, &window));
    check(rl_window_put(window, data, LEN - 2, other, 0, &GPU, NULL));
    check(rl_window_signal(window, other, &GPU));
    check(rl_window_wait_signal(window, other, &GPU));
    // What follows in the stream sees what was put. `data` is overwritten by this rank's own part.
    check(rl_window_get(window, data, LEN - 2, own, 0, &GPU, NULL));
    check(rl_window_flush(window, own, &GPU, NULL));
    download(seen, data, sizeof seen);
    int put = 0;
    for (uint64_t i = 0; i < LEN - 2; i++) put += seen[i] == other * 1000000 + i;
    printf("rank %u: %d numbers were put\n", own, put);

    // Both count in the last word of rank 0; one of them finds 0 in the word before it.
    check(rl_window_fetch_add(window, 1, 0, LEN - 1, before, &GPU));
    check(rl_window_compare_swap(window, 0, 5, 0, LEN - 2, before + 1, &GPU));
    check(rl_window_flush(window, 0, &GPU, NULL));
    check(rl_barrier(hosts, NULL, NULL));
    void *first;
    check(rl_window_map_remote(window, 0, &first));
    download(words, (uint64_t *)first + LEN - 2, sizeof words);
    printf("rank %u: the words are %d and %d\n", own, (int)words[0], (int)words[1]);
    download(words, before, sizeof words);
    uint64_t all[RANKS][2];
    check(rl_all_gather(hosts, all, words, 2, RL_U64, NULL, NULL));
    printf("rank %u: the additions saw %d, the swaps %d\n", own, (int)(all[0][0] + all[1][0]),
           (int)(all[0][1] + all[1][1]));

    rl_work *work;
    rl_window *none;
    say(own, "beyond", rl_window_put(window, data, 2, other, LEN - 1, &GPU, NULL));
    say(own, "no rank", rl_window_signal(window, RANKS, &GPU));
    say(own, "of the host", rl_window_put(window, numbers, 1, other, 0, NULL, NULL));
    say(own, "accumulate", rl_window_accumulate(window, data, 1, RL_SUM, other, 0, &GPU, NULL));
    say(own, "background", rl_window_put(window, data, 1, other, 0, &GPU, &work));
    say(own, "rights", rl_window_create(gpus, mine, LEN, RL_U64, RL_READ, &GPU, &none));
    say(own, "host memory", rl_window_create(gpus, numbers, LEN, RL_U64, ALL, &GPU, &none));
    check(rl_barrier(hosts, NULL, NULL));
    check(rl_window_free(window));
}

static void mixed(rl_comm *hosts, int has_gpu) {
    rl_comm *some;
    int32_t has_one = has_gpu && rl_rank(hosts) == 0;
    check(rl_cuda_mixed(hosts, has_one, -1, &some));
    float data[4] = {rl_rank(hosts) + 1, 2, 3, 4};
    void *place = has_one ? upload(data, sizeof data) : data;
    check(rl_all_reduce(some, place, 4, RL_F32, RL_SUM, has_one ? &GPU : NULL, NULL));
    if (has_one) download(data, place, sizeof data);
    printf("rank %u: with %s, the sum is %g\n", rl_rank(hosts), has_one ? "a GPU" : "its host", data[0]);
    rl_window *window;
    say(rl_rank(hosts), "not everywhere", rl_window_create(some, data, 4, RL_F32, ALL, &GPU, &window));
    rl_free(some);
}

// Waits for a signal that no rank sends: its failure ends the communicator on all ranks.
static void late(rl_comm *gpus) {
    uint64_t zeros[2] = {0};
    rl_options soon = {.memory = RL_CUDA, .timeout_ms = 1000};
    rl_window *window;
    check(rl_window_create(gpus, upload(zeros, sizeof zeros), 2, RL_U64, ALL, &GPU, &window));
    if (rl_rank(gpus) == 0) {
        check(rl_window_wait_signal(window, 1, &soon));
        say(0, "late", rl_window_flush(window, 1, &soon, NULL));
    } else {
        say(1, "ended", rl_barrier(gpus, NULL, NULL));
    }
    rl_window_drop(window);
}

static int rank(uint32_t own, struct note *note) {
    rl_store store = {note, set, get};
    rl_comm *hosts, *gpus;
    rl_window *window;
    float data[4] = {0};
    check(rl_join(own, RANKS, &store, NULL, 0, &hosts));
    say(own, "of a host", rl_window_create(hosts, data, 4, RL_F32, ALL, &GPU, &window));
    int32_t status = rl_cuda(hosts, -1, &gpus);
    if (status == 0) {
        find_driver();
        windows(hosts, gpus);
    } else {
        say(own, "no GPU", status);
    }
    mixed(hosts, status == 0);
    if (status == 0) {
        late(gpus);
        rl_free(gpus);
    }
    rl_free(hosts);
    return 0;
}

int main(void) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    struct note *note = mmap(NULL, sizeof *note, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (note == MAP_FAILED) return 1;
    pid_t ranks[RANKS];
    for (uint32_t i = 0; i < RANKS; i++) {
        ranks[i] = fork();
        if (ranks[i] == 0) return rank(i, note);
    }
    int failed = 0;
    for (int i = 0; i < RANKS; i++) {
        int status = 1;
        waitpid(ranks[i], &status, 0);
        failed |= status;
    }
    return failed != 0;
}
