// Two sides that have no communicator: each registers memory, and writes to that of the other one.

#define _POSIX_C_SOURCE 200809L // pthread_barrier_t

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "roundelay.h"

enum { LEN = 100000, LIMIT = 30000 };

// What the sides tell each other: here through memory, else by a store, a file or a message.
static struct {
    rl_endpoint *endpoint;
    unsigned char address[4096], key[64];
    uint64_t address_len, key_len;
} sides[2];
static pthread_barrier_t notified;

static void *side(void *argument) {
    int own = (int)(intptr_t)argument, other = 1 - own;
    rl_endpoint *endpoint = sides[own].endpoint;
    rl_link *link;
    check(rl_endpoint_connect(endpoint, sides[other].address, sides[other].address_len, LIMIT, &link));

    unsigned char *mine = calloc(LEN, 1), *data = malloc(LEN);
    memset(data, 'A' + own, LEN);
    rl_region *region;
    check(rl_endpoint_register(endpoint, mine, LEN, RL_READ | RL_WRITE | RL_ATOMICS, &region));
    check(rl_region_key(region, sides[own].key, sizeof sides[own].key, &sides[own].key_len));
    pthread_barrier_wait(&notified);

    rl_remote *there;
    check(rl_link_open(link, sides[other].key, sides[other].key_len, &there));
    rl_work *work;
    uint64_t value = 40 + (uint64_t)own;
    check(rl_remote_put(there, data, LEN, 0, &value, &work));
    check(rl_work_wait(work, UINT64_MAX, NULL));
    rl_work_free(work);

    // The receiver of the notification sees what was written before.
    int32_t came;
    check(rl_link_wait_signal(link, LIMIT, &value, &came));
    int written = 0;
    for (int i = 0; i < LEN; i++) written += mine[i] == 'A' + other;
    unsigned char last[2];
    check(rl_remote_get(there, last, 2, LEN - 2, NULL));
    printf("side %d: notified by %llu, %d bytes were written here, read back %c%c\n", own,
           (unsigned long long)value, written, last[0], last[1]);
    if (own == 0 && rl_remote_put(there, data, 2, LEN - 1, NULL, NULL) != 0) {
        rl_error error;
        rl_last_error(&error);
        printf("%s\n", error.text);
    }
    pthread_barrier_wait(&notified);

    // A word of 8 bytes is changed in one step. That of the peer has 8 letters, which this side has written.
    uint64_t word, before[3];
    memset(&word, 'A' + own, sizeof word);
    check(rl_remote_fetch_add(there, 1, 8, &before[0]));
    check(rl_remote_compare_swap(there, word + 1, 7, 8, &before[1]));
    check(rl_remote_compare_swap(there, word + 1, 9, 8, &before[2]));
    int is_right = before[0] == word && before[1] == word + 1 && before[2] == 7;
    printf("side %d: its word was added to, and swapped once: %s\n", own, is_right ? "yes" : "no");
    if (own == 0 && rl_remote_fetch_add(there, 1, 12, before) != 0) {
        rl_error error;
        rl_last_error(&error);
        printf("%s\n", error.text);
    }
    pthread_barrier_wait(&notified);

    rl_remote_free(there);
    check(rl_region_revoke(region));
    check(rl_link_close(link));
    check(rl_link_free(link));
    free(mine);
    free(data);
    return NULL;
}

int main(void) {
    pthread_t threads[2];
    pthread_barrier_init(&notified, NULL, 2);
    for (int i = 0; i < 2; i++) {
        check(rl_endpoint_bind("interface=127.0.0.1", &sides[i].endpoint));
        check(rl_endpoint_address(sides[i].endpoint, sides[i].address, sizeof sides[i].address,
                                  &sides[i].address_len));
    }
    for (int i = 0; i < 2; i++) pthread_create(&threads[i], NULL, side, (void *)(intptr_t)i);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < 2; i++) {
        check(rl_endpoint_close(sides[i].endpoint));
        check(rl_endpoint_free(sides[i].endpoint));
    }
    return 0;
}
