/* Layouts: the tiers that a rank sees, by a table. */
#include "../../back/layout.h"

#include "unit.h"

/* A set of numbers as text, "0 2 4". */
static const char *text(const int *numbers, int count)
{
    static char texts[8][256];
    static int at;
    char *to = texts[at = (at + 1) % 8];
    *to = '\0';
    for (int i = 0; i < count; i++)
        sprintf(to + strlen(to), "%s%d", i ? " " : "", numbers[i]);
    return to;
}

#define SAME(numbers, count, want) CHECK(!strcmp(text(numbers, count), want), "%s, not %s", text(numbers, count), want)

static void check_one_site(void)
{
    struct layout layout;
    int place[] = {7, 7, 7};
    CHECK(layout_make(&layout, place, 1, 3, 1) == 0, "memory");
    CHECK(layout.tiers == 0 && layout.sites == 1 && layout.site_members == 3, "%d %d", layout.tiers, layout.sites);
    SAME(layout.site_ranks, 3, "0 1 2");
    SAME(layout.site_of, 3, "0 0 0");
    layout_free(&layout);
    CHECK(layout_make(&layout, place, 1, 1, 0) == 0 && layout.site_members == 1, "one rank");
    layout_free(&layout);
}

static void check_interleaved(void)
{
    struct layout layout;
    int place[] = {5, 3, 5, 3, 9, 5};
    CHECK(layout_make(&layout, place, 1, 6, 3) == 0, "memory");
    CHECK(layout.tiers == 1 && layout.sites == 3, "%d %d", layout.tiers, layout.sites);
    const struct tier *tier = &layout.tier[0];
    CHECK(tier->level == 0 && tier->members == 6 && tier->subsets == 3 && tier->mine == 1, "tier");
    SAME(tier->ranks, 6, "0 1 2 3 4 5");
    SAME(tier->subset_of, 6, "0 1 0 1 2 0");
    SAME(tier->leaders, 3, "0 1 4");
    SAME(tier->counts, 3, "3 2 1");
    SAME(layout.site_of, 6, "0 1 0 1 2 0");
    SAME(layout.site_ranks, layout.site_members, "1 3");
    layout_free(&layout);
}

/* Continent, region, site. Regions 1 of continents 0 and 1 are different places. */
static void check_levels(void)
{
    static const int place[] = {
        0, 1, 0,   1, 1, 1,   0, 1, 2,   0, 2, 3,   1, 1, 1,   0, 1, 0,
    };
    struct layout layout;
    CHECK(layout_make(&layout, place, 3, 6, 5) == 0, "memory");
    CHECK(layout.tiers == 3 && layout.sites == 4, "%d %d", layout.tiers, layout.sites);
    SAME(layout.tier[0].subset_of, 6, "0 1 0 0 1 0");
    SAME(layout.tier[1].ranks, layout.tier[1].members, "0 2 3 5");
    SAME(layout.tier[1].subset_of, 4, "0 0 1 0");
    SAME(layout.tier[1].leaders, 2, "0 3");
    SAME(layout.tier[2].ranks, layout.tier[2].members, "0 2 5");
    SAME(layout.tier[2].subset_of, 3, "0 1 0");
    CHECK(layout.tier[2].level == 2 && layout.tier[2].mine == 0, "%d", layout.tier[2].level);
    SAME(layout.site_of, 6, "0 1 2 3 1 0");
    SAME(layout.site_ranks, layout.site_members, "0 5");
    layout_free(&layout);
    CHECK(layout_make(&layout, place, 3, 6, 4) == 0, "memory");
    CHECK(layout.tiers == 1 && layout.tier[0].level == 0 && layout.tier[0].mine == 1, "a continent with one site");
    SAME(layout.site_ranks, layout.site_members, "1 4");
    layout_free(&layout);
    CHECK(layout_make(&layout, place, 3, 6, 3) == 0, "memory");
    CHECK(layout.tiers == 2 && layout.tier[1].level == 1 && layout.site_members == 1, "a region with one rank");
    layout_free(&layout);
}

/* Same number within different places. */
static void check_same_numbers(void)
{
    static const int place[] = {0, 4, 1, 4};
    struct layout layout;
    CHECK(layout_make(&layout, place, 2, 2, 0) == 0 && layout.sites == 2, "%d", layout.sites);
    CHECK(layout.tiers == 1 && layout.tier[0].level == 0, "%d", layout.tiers);
    layout_free(&layout);
}

static void check_positions(void)
{
    int ranks[] = {2, 5, 9};
    struct tier tier = {.members = 3, .ranks = ranks};
    static const int want[][2] = {{2, 0}, {5, 1}, {9, 2}, {0, -1}, {3, -1}, {10, -1}};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++)
        CHECK(tier_position(&tier, want[i][0]) == want[i][1], "%d", want[i][0]);
}

/* 100,000 ranks on 1,000 sites. */
static void check_large(void)
{
    enum { RANKS = 100000 };
    static int place[RANKS * 2];
    for (int i = 0; i < RANKS; i++) {
        place[2 * i] = i % 10;
        place[2 * i + 1] = i % 1000;
    }
    struct layout layout;
    CHECK(layout_make(&layout, place, 2, RANKS, 12345) == 0 && layout.sites == 1000, "%d", layout.sites);
    CHECK(layout.tiers == 2 && layout.tier[1].members == RANKS / 10 && layout.site_members == 100, "%d", layout.tiers);
    CHECK(layout.site_ranks[0] == 345 && layout.site_ranks[99] == 99345, "%d", layout.site_ranks[0]);
    layout_free(&layout);
}

int main(void)
{
    check_one_site();
    check_interleaved();
    check_levels();
    check_same_numbers();
    check_positions();
    check_large();
    return finish("layout");
}
