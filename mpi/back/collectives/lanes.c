#include "tree.h"

#include <string.h>

void lanes_make(struct call *call, struct lanes *lanes, int count)
{
    const struct layout *layout = call->layout;
    int sites = layout->sites, largest = 0;
    *lanes = (struct lanes){
        .site_of = layout->site_of,
        .start = call_ints(call, sites + 1),
        .ranks = call_ints(call, layout->size),
        .index = call_ints(call, layout->size),
    };
    if (!call_ok(call))
        return;
    memset(lanes->start, 0, (size_t)(sites + 1) * sizeof(int));
    for (int r = 0; r < layout->size; r++)
        lanes->index[r] = lanes->start[layout->site_of[r] + 1]++;
    for (int s = 0; s < sites; s++) {
        if (lanes->start[s + 1] > largest)
            largest = lanes->start[s + 1];
        lanes->start[s + 1] += lanes->start[s];
    }
    for (int r = 0; r < layout->size; r++)
        lanes->ranks[lanes->start[layout->site_of[r]] + lanes->index[r]] = r;
    lanes->count = count > 0 ? count : largest < LANES_MAX ? largest : LANES_MAX;
}

int lanes_site_members(const struct lanes *lanes, int site)
{
    return lanes->start[site + 1] - lanes->start[site];
}

int lanes_holder(const struct lanes *lanes, int site, int lane)
{
    long long members = lanes_site_members(lanes, site);
    return lanes->ranks[lanes->start[site] + (int)(lane * members / lanes->count)];
}

void lanes_of(const struct lanes *lanes, int index, int members, int *first, int *end)
{
    long long count = lanes->count;
    *first = (int)((index * count + members - 1) / members);
    *end = (int)(((index + 1) * count + members - 1) / members);
}

int lanes_share(const struct lanes *lanes, int lane, int count)
{
    return (int)((long long)count * lane / lanes->count);
}

void shares_make(struct call *call, struct shares *shares, const struct lanes *lanes, int count)
{
    int members = call->layout->site_members;
    int own = site_index(call->layout, call->layout->rank);
    shares->counts = call_ints(call, members);
    shares->starts = call_ints(call, members);
    if (!call_ok(call))
        return;
    for (int i = 0; i < members; i++) {
        int first, end;
        lanes_of(lanes, i, members, &first, &end);
        shares->starts[i] = lanes_share(lanes, first, count);
        shares->counts[i] = lanes_share(lanes, end, count) - shares->starts[i];
        if (i == own) {
            shares->first = first;
            shares->end = end;
        }
    }
}
