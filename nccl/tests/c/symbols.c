/* symbols LIBRARY NAME...: ends well if the library has each function, and the same with a p before it. */
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv) {
    void *library = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    if (library == NULL) {
        printf("%s\n", dlerror());
        return 1;
    }
    int missing = 0;
    for (int i = 2; i < argc; ++i) {
        char profiled[128];
        snprintf(profiled, sizeof profiled, "p%s", argv[i]);
        const char *names[] = {argv[i], profiled};
        for (int k = 0; k < 2; ++k)
            if (dlsym(library, names[k]) == NULL) {
                printf("%s is missing\n", names[k]);
                missing = 1;
            }
    }
    return missing;
}
