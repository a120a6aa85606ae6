#include "fold.h"

#include "../alone.h"
#include "../real.h"
#include "site.h"

int reduction_of(struct reduction *reduction, const void *buffer, int count, MPI_Datatype type, MPI_Op op)
{
    reduction->op = op;
    return kind_of(&reduction->kind, buffer, count, type) && reduction->kind.extent >= 0 && !is_bad_op(op, type) &&
           real.Op_commutative(op, &reduction->commutative) == MPI_SUCCESS;
}

struct layout reduction_layout(struct call *call, const struct reduction *reduction)
{
    struct layout layout = *call->layout;
    if (!reduction->commutative)
        layout_flat(call, &layout);
    return layout;
}

char *reduce_shares(struct call *call, const struct reduction *reduction, const void *send, int count,
                    struct lanes *lanes, struct shares *shares)
{
    lanes_make(call, lanes, 0);
    if (call_ok(call))
        shares_make(call, shares, lanes, count);
    if (!call_ok(call))
        return NULL;
    char *part = elements_memory(call, &reduction->kind, shares->counts[site_index(call->layout, call->layout->rank)]);
    if (call_ok(call))
        site_reduce_scatter(call, reduction, send, part, shares->counts);
    return part;
}

char *fold(struct call *call, const struct reduction *reduction, char **part, const int *arrived, int parts, int count)
{
    if (!call_ok(call))
        return NULL;
    char *last = part[parts - 1];
    call_wait(call, arrived[parts - 1]);
    for (int i = parts - 2; i >= 0; i--) {
        call_wait(call, arrived[i]);
        CALL_DO(call, real.Reduce_local(part[i], last, count, reduction->kind.type, reduction->op));
    }
    return last;
}

void fold_receive(struct call *call, const struct reduction *reduction, const int *ranks, int parts, int own,
                  char *own_part, int count, int tag, char **part, int *arrived)
{
    for (int i = 0; i < parts && call_ok(call); i++) {
        part[i] = i == own ? own_part : elements_memory(call, &reduction->kind, count);
        arrived[i] = -1;
        if (i != own && call_ok(call))
            arrived[i] = call_receive(call, part[i], count, reduction->kind.type, ranks[i], tag);
    }
}
