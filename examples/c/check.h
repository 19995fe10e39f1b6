// Ends an example with the error of a call that has failed.

#pragma once

#include <stdio.h>
#include <stdlib.h>

#include "roundelay.h"

static void check(int32_t status) {
    rl_error error;
    if (status == 0) return;
    rl_last_error(&error);
    fprintf(stderr, "error[RL%04d]: %s\n", error.code, error.text);
    exit(1);
}
