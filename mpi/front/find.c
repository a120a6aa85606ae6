#include "find.h"

#include <dlfcn.h>
#include <libgen.h>
#include <limits.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../back/say.h"

/* The longest that an MPI may answer: MPI_MAX_LIBRARY_VERSION_STRING of MPICH. */
#define VERSION_MAX 8192

/* The ABIs, by the soname of the library that has MPI_Init. MPI_Get_library_version() must
 * begin with `begins`, and not with `other`, another MPI that had this soname: Open MPI 1.10.
 * A back end of the wrong ABI would work for simple calls and corrupt memory in others. */
static const struct abi {
    const char *soname;
    const char *kind;
    const char *name;
    const char *begins, *other;     /* NULL: anything; none */
} abis[] = {
    {"libmpi.so.40", "openmpi", "Open MPI", "Open MPI v", NULL},
    {"libmpi_abi.so.0", "abi", "an MPI of the standard's ABI", NULL, NULL},
    {"libmpi_abi.so.1", "abi", "an MPI of the standard's ABI", NULL, NULL},
    {"libmpi.so.12", "mpich", "MPICH", NULL, "Open MPI v"},
    {"libmpich.so.12", "mpich", "MPICH", NULL, NULL},
};

struct loaded {
    const struct abi *abi;
    char path[PATH_MAX];
};

/* The soname of a loaded object, or NULL. */
static const char *soname_of(const struct dl_phdr_info *info)
{
    for (int i = 0; i < info->dlpi_phnum; i++) {
        if (info->dlpi_phdr[i].p_type != PT_DYNAMIC)
            continue;
        const ElfW(Dyn) *entry = (const void *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
        uintptr_t strings = 0, name = UINTPTR_MAX;
        for (; entry->d_tag != DT_NULL; entry++) {
            if (entry->d_tag == DT_STRTAB)
                strings = entry->d_un.d_ptr;
            if (entry->d_tag == DT_SONAME)
                name = entry->d_un.d_val;
        }
        if (!strings || name == UINTPTR_MAX)
            return NULL;
        /* Some C libraries leave the address as it is in the file. */
        if (strings < info->dlpi_addr)
            strings += info->dlpi_addr;
        return (const char *)strings + name;
    }
    return NULL;
}

static int look_for_mpi(struct dl_phdr_info *info, size_t size, void *argument)
{
    (void)size;
    struct loaded *loaded = argument;
    /* The kernel's own object has no file, and the addresses in it aren't relocated. */
    if (!info->dlpi_name || !strchr(info->dlpi_name, '/'))
        return 0;
    const char *soname = soname_of(info);
    if (!soname)
        return 0;
    for (size_t i = 0; i < sizeof abis / sizeof *abis; i++) {
        if (strcmp(soname, abis[i].soname) != 0 || strlen(info->dlpi_name) >= sizeof loaded->path)
            continue;
        loaded->abi = &abis[i];
        strcpy(loaded->path, info->dlpi_name);
        return 1;
    }
    return 0;
}

static int begins_with(const char *text, const char *start)
{
    return strncmp(text, start, strlen(start)) == 0;
}

/* Whether the MPI says that it is what its soname says. */
static int version_fits(const struct abi *abi, void *mpi)
{
    if (!abi->begins && !abi->other)
        return 1;
    int (*get)(char *, int *) = (int (*)(char *, int *))dlsym(mpi, "PMPI_Get_library_version");
    if (!get)
        return 0;
    char text[VERSION_MAX + 1] = "";
    int length = 0;
    if (get(text, &length) != 0)
        return 0;
    return (!abi->begins || begins_with(text, abi->begins)) && !(abi->other && begins_with(text, abi->other));
}

/* Loads the back end that lies beside the front's own file. */
static const struct back *load_back(const struct abi *abi, const char *own, const struct front *front)
{
    char file[PATH_MAX], path[PATH_MAX + 64], why[512] = "";
    if (!realpath(own, file)) {
        say("the MPI library %s can't be found any more; its collectives are left out", own);
        return NULL;
    }
    snprintf(path, sizeof path, "%s/libisthmus_mpi_%s.so", dirname(file), abi->kind);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        say("collectives are the MPI's own: no back end for %s: %s", abi->soname, dlerror());
        return NULL;
    }
    back_start *start = (back_start *)(function)dlsym(library, BACK_SYMBOL);
    const struct back *back = start ? start(front, why, sizeof why) : NULL;
    if (back && back->version == FRONT_VERSION)
        return back;
    say("collectives are the MPI's own: %s: %s", path, *why ? why : "it is of another version of isthmus");
    return NULL;
}

int find_mpi(struct found *found, int *depths_keyval, int *colors_keyval)
{
    /* They live as long as the process: the back end keeps them. */
    static struct front front;
    static char topology[PATH_MAX + 16];

    struct loaded loaded = {0};
    if (!dl_iterate_phdr(look_for_mpi, &loaded))
        return -1;
    found->mpi = dlopen(loaded.path, RTLD_NOW | RTLD_NOLOAD);
    if (!found->mpi)
        return -1;
    found->back = NULL;
    if (!version_fits(loaded.abi, found->mpi)) {
        say("collectives are the MPI's own: %s isn't %s", loaded.path, loaded.abi->name);
        return 0;
    }
    /* The name under which the front was preloaded: a link in the job's directory. */
    Dl_info own;
    if (!dladdr((void *)(uintptr_t)find_mpi, &own) || !own.dli_fname)
        return 0;
    char link[PATH_MAX];
    snprintf(link, sizeof link, "%s", own.dli_fname);
    snprintf(topology, sizeof topology, "%s/topology", dirname(link));
    front = (struct front){
        .version = FRONT_VERSION,
        .mpi = found->mpi,
        .topology = topology,
        .depths_keyval = depths_keyval,
        .colors_keyval = colors_keyval,
    };
    found->back = load_back(loaded.abi, own.dli_fname, &front);
    return 0;
}
