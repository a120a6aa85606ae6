/* MPI_Barrier (MPI-4.1, 6.3): the site, the crossings, the site. */
#include "collectives.h"

#include "../real.h"
#include "site.h"
#include "tree.h"

/* One who stands for a subset of the widest tier tells the others that it is complete, and
 * hears the same from them. */
static void meet(struct call *call, const struct tier *tier)
{
    int *heard = call_ints(call, tier->subsets);
    for (int s = 0; s < tier->subsets && call_ok(call); s++) {
        heard[s] = -1;
        if (s == tier->mine)
            continue;
        heard[s] = call_receive_bytes(call, NULL, 0, tier->leaders[s]);
        call_send_bytes(call, NULL, 0, tier->leaders[s]);
    }
    for (int s = 0; s < tier->subsets && call_ok(call); s++)
        call_wait(call, heard[s]);
}

static void cross(struct call *call, const struct tree *tree)
{
    int released = -1;
    int *arrived = call_ints(call, tree->children);
    if (tree->parent >= 0)
        released = call_receive_bytes(call, NULL, 0, tree->parent);
    for (int c = 0; c < tree->children && call_ok(call); c++)
        arrived[c] = call_receive_bytes(call, NULL, 0, tree->child[c].rank);
    for (int c = 0; c < tree->children && call_ok(call); c++)
        call_wait(call, arrived[c]);
    if (tree->parent >= 0)
        call_send_bytes(call, NULL, 0, tree->parent);
    else
        meet(call, &call->layout->tier[0]);
    call_wait(call, released);
    for (int c = 0; c < tree->children && call_ok(call); c++)
        call_send_bytes(call, NULL, 0, tree->child[c].rank);
}

static void barrier(struct call *call)
{
    const struct tier *widest = &call->layout->tier[0];
    struct tree tree;
    tree_make(call, &tree, call->layout, NULL, 0, 1, widest->leaders[widest->mine]);
    site_arrive(call, tree.head);
    if (call_ok(call) && tree.member)
        cross(call, &tree);
    site_leave(call, tree.head);
}

int coll_Barrier(MPI_Comm comm)
{
    struct call call;
    if (!call_begin(&call, OP_BARRIER, comm) || !call_takes(&call, 0, 0, 1))
        return real.Barrier(comm);
    barrier(&call);
    return call_end(&call);
}
