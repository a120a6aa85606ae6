#include "layout.h"

#include <stdlib.h>
#include <string.h>

#include "numbering.h"

/* A set of ranks, which shrinks level by level to the calling rank's site. */
struct set {
    int *ranks;
    int members;
};

static int *ints(int count)
{
    return malloc((size_t)(count > 0 ? count : 1) * sizeof(int));
}

/* Numbers the subset of each member by the lowest rank. Returns the number of subsets, or
 * -1 without memory. */
static int number_subsets(const struct set *set, const int *place, int levels, int level, int *subset_of)
{
    struct numbering numbering;
    if (numbering_start(&numbering, set->members) != 0)
        return -1;
    for (int i = 0; i < set->members; i++)
        subset_of[i] = numbering_of(&numbering, place[(size_t)set->ranks[i] * (size_t)levels + (size_t)level], 0);
    numbering_free(&numbering);
    return numbering.count;
}

static void tier_free(struct tier *tier)
{
    free(tier->ranks);
    free(tier->subset_of);
    free(tier->leaders);
    free(tier->counts);
}

/* Fills a tier, of which `subset_of` and `subsets` are known; it takes the array. */
static int tier_make(struct tier *tier, const struct set *set, int *subset_of, int subsets, int level, int rank)
{
    *tier = (struct tier){
        .level = level,
        .members = set->members,
        .subsets = subsets,
        .subset_of = subset_of,
        .ranks = ints(set->members),
        .leaders = ints(subsets),
        .counts = ints(subsets),
    };
    if (!tier->ranks || !tier->leaders || !tier->counts)
        return -1;
    memcpy(tier->ranks, set->ranks, (size_t)set->members * sizeof(int));
    memset(tier->counts, 0, (size_t)subsets * sizeof(int));
    for (int i = 0; i < set->members; i++) {
        int subset = subset_of[i];
        if (tier->counts[subset]++ == 0)
            tier->leaders[subset] = set->ranks[i];
        if (set->ranks[i] == rank)
            tier->mine = subset;
    }
    return 0;
}

/* Leaves in the set what is together with the calling rank. */
static void narrow(struct set *set, const struct tier *tier)
{
    int kept = 0;
    for (int i = 0; i < tier->members; i++)
        if (tier->subset_of[i] == tier->mine)
            set->ranks[kept++] = tier->ranks[i];
    set->members = kept;
}

static int make_tiers(struct layout *layout, const int *place, int levels, struct set *set)
{
    for (int level = 0; level < levels && level < LEVELS_MAX; level++) {
        int *subset_of = ints(set->members);
        int subsets = subset_of ? number_subsets(set, place, levels, level, subset_of) : -1;
        if (subsets < 2) {
            free(subset_of);
            if (subsets < 0)
                return -1;
            continue;
        }
        struct tier *tier = &layout->tier[layout->tiers++];
        if (tier_make(tier, set, subset_of, subsets, level, layout->rank) != 0)
            return -1;
        narrow(set, tier);
    }
    return 0;
}

/* A site is where all levels are equal: it is numbered by its lowest rank. */
static int number_sites(struct layout *layout, const int *place, int levels)
{
    memset(layout->site_of, 0, (size_t)layout->size * sizeof(int));
    layout->sites = 1;
    for (int level = 0; level < levels; level++) {
        struct numbering numbering;
        if (numbering_start(&numbering, layout->size) != 0)
            return -1;
        for (int i = 0; i < layout->size; i++)
            layout->site_of[i] = numbering_of(&numbering, layout->site_of[i], place[(size_t)i * (size_t)levels + (size_t)level]);
        layout->sites = numbering.count;
        numbering_free(&numbering);
    }
    return 0;
}

int layout_make(struct layout *layout, const int *place, int levels, int size, int rank)
{
    *layout = (struct layout){.size = size, .rank = rank};
    struct set set = {.ranks = ints(size), .members = size};
    layout->site_of = ints(size);
    if (!set.ranks || !layout->site_of)
        goto fail;
    for (int i = 0; i < size; i++)
        set.ranks[i] = i;
    if (make_tiers(layout, place, levels, &set) != 0 || number_sites(layout, place, levels) != 0)
        goto fail;
    layout->site_ranks = set.ranks;
    layout->site_members = set.members;
    return 0;
fail:
    free(set.ranks);
    layout_free(layout);
    return -1;
}

void layout_free(struct layout *layout)
{
    for (int i = 0; i < layout->tiers; i++)
        tier_free(&layout->tier[i]);
    free(layout->site_of);
    free(layout->site_ranks);
    *layout = (struct layout){0};
}

int tier_position(const struct tier *tier, int rank)
{
    int low = 0, high = tier->members - 1;
    while (low <= high) {
        int middle = low + (high - low) / 2;
        if (tier->ranks[middle] == rank)
            return middle;
        if (tier->ranks[middle] < rank)
            low = middle + 1;
        else
            high = middle - 1;
    }
    return -1;
}
