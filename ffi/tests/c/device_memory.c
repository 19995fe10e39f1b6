// The allocator of GPU memory: what it refuses, and memory where there is a GPU.

#include <stdio.h>
#include <stdlib.h>

#include "roundelay.h"

static void report(const char *what, void *made) {
    rl_error error;
    rl_last_error(&error);
    printf("%s: %s\n", what, made != NULL ? "allocated" : error.text);
}

int main(void) {
    report("no bytes", rl_cuda_alloc(0, 0, NULL));
    report("no device", rl_cuda_alloc(16, -1, NULL));
    void *made = rl_cuda_alloc(1 << 20, 0, NULL);
    report("1 MiB", made);
    rl_cuda_free(made, 1 << 20, 0, NULL);
    void *absent = rl_cuda_alloc(16, 1000, NULL);
    report("device 1000", absent);
    return absent == NULL ? 0 : 1;
}
