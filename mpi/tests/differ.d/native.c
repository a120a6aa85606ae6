#include "differ.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <string.h>

struct native native;

static int look(struct dl_phdr_info *info, size_t size, void *found)
{
    static const char *const names[] = { "libmpi.so.", "libmpich.so.", "libmpi_abi.so." };
    const char *base = strrchr(info->dlpi_name, '/');
    base = base ? base + 1 : info->dlpi_name;
    (void)size;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strncmp(base, names[i], strlen(names[i])) == 0) {
            snprintf(found, 4096, "%s", info->dlpi_name);
            return 1;
        }
    return 0;
}

int native_find(void)
{
    char path[4096] = "";
    dl_iterate_phdr(look, path);
    void *mpi = path[0] ? dlopen(path, RTLD_NOW | RTLD_NOLOAD) : NULL;
    if (mpi == NULL)
        return -1;
#define X(name) \
    native.name = (__typeof__(native.name))dlsym(mpi, "PMPI_" #name); \
    if (native.name == NULL || dlsym(RTLD_DEFAULT, "MPI_" #name) == dlsym(mpi, "MPI_" #name)) \
        return -1;
    NATIVE_CALLS(X)
#undef X
    return 0;
}
