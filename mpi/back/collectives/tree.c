#include "tree.h"

int tree_representative(const struct lanes *lanes, int lane, const struct tier *tier, int subset)
{
    int lowest = tier->leaders[subset];
    return lanes ? lanes_holder(lanes, lanes->site_of[lowest], lane) : lowest;
}

static void add_children(struct tree *tree, const struct lanes *lanes, int lane, const struct tier *tier, int number,
                         int own)
{
    if (tree->children == 0)
        tree->before = own;
    for (int s = 0; s < tier->subsets; s++) {
        if (s == own)
            continue;
        tree->child[tree->children++] = (struct child){
            .rank = tree_representative(lanes, lane, tier, s), .tier = number, .subset = s,
        };
    }
}

void tree_make(struct call *call, struct tree *tree, const struct layout *layout, const struct lanes *lanes, int lane,
               int first_tier, int root)
{
    *tree = (struct tree){ .parent = -1, .parent_tier = first_tier - 1 };
    int room = 0, source = root;
    for (int t = first_tier; t < layout->tiers; t++)
        room += layout->tier[t].subsets;
    tree->child = call_memory(call, (size_t)room * sizeof *tree->child);
    if (tree->child == NULL)
        return;
    for (int t = first_tier; t < layout->tiers; t++) {
        const struct tier *tier = &layout->tier[t];
        int from = tier->subset_of[tier_position(tier, source)];
        if (source == layout->rank)
            add_children(tree, lanes, lane, tier, t, from);
        if (from == tier->mine)
            continue;
        int mine = tree_representative(lanes, lane, tier, tier->mine);
        if (mine == layout->rank) {
            tree->parent = source;
            tree->parent_tier = t;
        }
        source = mine;
    }
    tree->member = source == layout->rank;
    tree->head = site_index(layout, source);
}

void layout_flat(struct call *call, struct layout *flat)
{
    *flat = *call->layout;
    flat->tiers = 1;
    struct tier *tier = &flat->tier[0];
    *tier = (struct tier){
        .members = flat->size,
        .subsets = flat->sites,
        .subset_of = flat->site_of,
        .ranks = call_ints(call, flat->size),
        .leaders = call_ints(call, flat->sites),
        .counts = call_ints(call, flat->sites),
        .mine = flat->site_of[flat->rank],
    };
    if (!call_ok(call))
        return;
    for (int s = 0; s < flat->sites; s++)
        tier->counts[s] = 0;
    for (int r = 0; r < flat->size; r++) {
        tier->ranks[r] = r;
        if (tier->counts[flat->site_of[r]]++ == 0)
            tier->leaders[flat->site_of[r]] = r;
    }
}
