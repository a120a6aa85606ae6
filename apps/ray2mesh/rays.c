#include "rays.h"

#include <math.h>
#include <stdlib.h>

#include "memory.h"

/* Parameters per shell. */
enum { BETWEEN = 3 };

/* Points of a ray are at most so far from each other, seen from the centre. */
#define STEP (PI / 180 / 4)

/* How exactly a ray hits its place: 6 cm at the surface. */
#define HIT 1e-8

const char *const phase_names[PHASES] = {"P", "PKP", "S"};

/* A part of a ray: its angle and time. */
struct leg {
    double angle, time;
};

static const struct speeds *speeds_of(const struct earth *earth, enum phase phase)
{
    return phase == PHASE_S ? &earth->s : &earth->p;
}

/* acos(p / slowness), and sqrt(slowness^2 - p^2), which are 0 where the ray is level. */
static double steepness(double parameter, double slowness)
{
    return parameter < slowness ? acos(parameter / slowness) : 0;
}

static double root(double parameter, double slowness)
{
    return parameter < slowness ? sqrt((slowness - parameter) * (slowness + parameter)) : 0;
}

/* From one slowness of a shell down to another. */
static struct leg within(const struct shell *shell, double parameter, double outer, double inner)
{
    return (struct leg){
        (steepness(parameter, outer) - steepness(parameter, inner)) / shell->power,
        (root(parameter, outer) - root(parameter, inner)) / shell->power,
    };
}

/* From the surface to where the ray turns. The time of one that doesn't turn is negative. */
static struct leg to_turn(const struct speeds *speeds, double parameter)
{
    struct leg sum = {0, 0};
    for (size_t i = 0; i < speeds->shells; i++) {
        const struct shell *shell = &speeds->shell[i];
        if (shell->outer_slowness <= parameter)
            return sum;
        int turns = shell->inner_slowness <= parameter;
        struct leg leg = within(shell, parameter, shell->outer_slowness,
                                turns ? parameter : shell->inner_slowness);
        sum.angle += leg.angle;
        sum.time += leg.time;
        if (turns)
            return sum;
    }
    return (struct leg){0, -1};
}

/* From the surface down to a radius. */
static struct leg to_radius(const struct speeds *speeds, double parameter, double radius)
{
    struct leg sum = {0, 0};
    for (size_t i = 0; i < speeds->shells && speeds->shell[i].outer > radius; i++) {
        const struct shell *shell = &speeds->shell[i];
        double inner = shell->inner_slowness;
        if (shell->inner < radius)
            inner = shell->outer_slowness * pow(radius / shell->outer, shell->power);
        struct leg leg = within(shell, parameter, shell->outer_slowness, inner);
        sum.angle += leg.angle;
        sum.time += leg.time;
    }
    return sum;
}

static int ascending(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

/* The parameters at which rays turn in the shells, or right at their ends, from `least` to `most`. */
static struct table table_of(const struct speeds *speeds, double least, double most)
{
    struct table table = {0};
    table.parameter = allocate((2 + speeds->shells * (BETWEEN + 2)) * sizeof(double));
    table.parameter[table.count++] = least;
    for (size_t i = 0; i < speeds->shells; i++) {
        const struct shell *shell = &speeds->shell[i];
        for (int part = 0; part <= BETWEEN; part++) {
            double share = (double)part / BETWEEN;
            double parameter = shell->outer_slowness + share * (shell->inner_slowness - shell->outer_slowness);
            if (parameter > least && parameter < most)
                table.parameter[table.count++] = parameter;
        }
        /* Rays that just get below where the slowness grows downward again go much farther. */
        int is_lid = shell->power < 0 || (i + 1 < speeds->shells && shell[1].outer_slowness > shell->inner_slowness);
        double edge = fmin(shell->outer_slowness, shell->inner_slowness) * (1 - 1e-12);
        if (is_lid && edge > least && edge < most)
            table.parameter[table.count++] = edge;
    }
    table.parameter[table.count++] = most;
    qsort(table.parameter, table.count, sizeof(double), ascending);
    table.turn_angle = allocate(table.count * sizeof(double));
    for (size_t i = 0; i < table.count; i++) {
        struct leg leg = to_turn(speeds, table.parameter[i]);
        table.turn_angle[i] = leg.time < 0 ? NAN : leg.angle;
    }
    return table;
}

struct tracer tracer_of(const struct earth *earth)
{
    struct tracer tracer = {.earth = earth, .source = -1};
    double surface_p = slowness_below(&earth->p, earth->radius);
    double surface_s = slowness_below(&earth->s, earth->radius);
    tracer.table[PHASE_P] = table_of(&earth->p, earth->p.core_slowness, surface_p);
    if (earth->p.core_slowness > 0)
        tracer.table[PHASE_PKP] = table_of(&earth->p, 0, earth->p.core_slowness);
    tracer.table[PHASE_S] = table_of(&earth->s, earth->s.core_slowness, surface_s);
    for (int phase = 0; phase < PHASES; phase++)
        tracer.source_angle[phase] = allocate(tracer.table[phase].count * sizeof(double));
    return tracer;
}

void tracer_free(struct tracer *tracer)
{
    for (int phase = 0; phase < PHASES; phase++) {
        free(tracer->table[phase].parameter);
        free(tracer->table[phase].turn_angle);
        free(tracer->source_angle[phase]);
    }
}

/* Gets the tables ready for another source. */
static void move_source(struct tracer *tracer, double radius)
{
    if (radius == tracer->source)
        return;
    tracer->source = radius;
    for (int phase = 0; phase < PHASES; phase++) {
        const struct table *table = &tracer->table[phase];
        const struct speeds *speeds = speeds_of(tracer->earth, phase);
        for (size_t i = 0; i < table->count; i++)
            tracer->source_angle[phase][i] = to_radius(speeds, table->parameter[i], radius).angle;
    }
}

/* What a search is for: the parameter with which a ray goes from `source` as far as `angle`. */
struct search {
    const struct speeds *speeds;
    double source, angle;
    int up;
};

/* How far too far a ray goes, and its time. */
static struct leg miss(const struct search *search, double parameter)
{
    struct leg ray = to_radius(search->speeds, parameter, search->source);
    if (!search->up) {
        struct leg turn = to_turn(search->speeds, parameter);
        ray.angle = 2 * turn.angle - ray.angle;
        ray.time = turn.time < 0 ? -1 : 2 * turn.time - ray.time;
    }
    ray.angle -= search->angle;
    return ray;
}

/* An end of the parameters between which a ray is: how far too far the ray goes. */
struct end {
    double parameter, angle;
};

/* Makes `first` the ray between two parameters, one of which goes too far and one not far enough, if it
 * is earlier: false position with the remedy of Illinois, and halves where that is slow. */
static void consider(const struct search *search, struct end low, struct end high, struct arrival *first)
{
    int side = 0;
    for (int i = 1; i <= 100; i++) {
        double parameter = (low.parameter + high.parameter) / 2;
        if (i % 8 != 0 && low.angle != high.angle)
            parameter = low.parameter - low.angle * (high.parameter - low.parameter) / (high.angle - low.angle);
        struct leg ray = miss(search, parameter);
        if (ray.time < 0)
            return;
        if (fabs(ray.angle) < HIT) {
            if (first->time < 0 || ray.time < first->time)
                *first = (struct arrival){ray.time, parameter, search->up};
            return;
        }
        if ((ray.angle < 0) == (low.angle < 0)) {
            low = (struct end){parameter, ray.angle};
            high.angle /= side == -1 ? 2 : 1;
            side = -1;
        } else {
            high = (struct end){parameter, ray.angle};
            low.angle /= side == 1 ? 2 : 1;
            side = 1;
        }
    }
}

/* The first ray that goes down, of the table's parameters up to `most`. */
static void look_down(const struct search *search, const struct table *table, const double *source_angle,
                      double most, struct arrival *first)
{
    struct end last = {0, NAN};
    for (size_t i = 0; i < table->count; i++) {
        int ends = table->parameter[i] >= most;
        struct end here = {table->parameter[i], 2 * table->turn_angle[i] - source_angle[i] - search->angle};
        if (ends)
            here = (struct end){most, miss(search, most).angle};
        if (fabs(here.angle) < HIT)
            consider(search, here, here, first);
        else if ((last.angle < 0 && here.angle > 0) || (last.angle > 0 && here.angle < 0))
            consider(search, last, here, first);
        last = here;
        if (ends)
            return;
    }
}

struct arrival first_arrival(struct tracer *tracer, enum phase phase, double radius, double angle)
{
    const struct speeds *speeds = speeds_of(tracer->earth, phase);
    struct arrival first = {.time = -1};
    struct search search = {speeds, radius, angle, 0};
    /* Flatter rays don't come to the surface. */
    double most = least_slowness_above(speeds, radius);
    move_source(tracer, radius);
    look_down(&search, &tracer->table[phase], tracer->source_angle[phase],
              fmin(most, slowness_below(speeds, radius)), &first);
    /* The flatter a ray goes up, the farther. */
    if (phase != PHASE_PKP && radius < tracer->earth->radius) {
        struct end low = {0, -angle}, high = {most, 0};
        search.up = 1;
        high.angle = miss(&search, high.parameter).angle;
        if (high.angle >= 0)
            consider(&search, low, high, &first);
    }
    return first;
}

static void push(struct point **points, size_t *count, size_t *room, double angle, double radius)
{
    if (*count == *room) {
        *room = *room ? 2 * *room : 256;
        *points = resize(*points, *room * sizeof **points);
    }
    (*points)[(*count)++] = (struct point){angle, radius};
}

/* The points from one slowness of a shell down to another: the last, and those before it that make the
 * steps small. The angle of each is known from the shell's law, and its radius from that. */
static void descend(const struct shell *shell, double parameter, double outer, double inner, double angle,
                    double end, struct point **points, size_t *count, size_t *room)
{
    double whole = within(shell, parameter, outer, inner).angle;
    int steps = parameter > 0 ? (int)ceil(whole / STEP) : 1;
    for (int step = 1; step < steps; step++) {
        double part = whole * step / steps;
        double slowness = parameter / cos(steepness(parameter, outer) - shell->power * part);
        push(points, count, room, angle + part,
             shell->outer * pow(slowness / shell->outer_slowness, 1 / shell->power));
    }
    push(points, count, room, angle + whole, end);
}

/* From the surface to `stop`, or to the turning point if that is higher. */
static size_t way_down(const struct speeds *speeds, double parameter, double stop, struct point **points,
                       size_t *room)
{
    size_t count = 0;
    push(points, &count, room, 0, speeds->shell[0].outer);
    for (size_t i = 0; i < speeds->shells && speeds->shell[i].outer > stop; i++) {
        const struct shell *shell = &speeds->shell[i];
        double inner = shell->inner_slowness, end = shell->inner;
        if (shell->outer_slowness <= parameter)
            break;
        int turns = inner <= parameter;
        if (turns) {
            inner = parameter;
            end = shell->outer * pow(parameter / shell->outer_slowness, 1 / shell->power);
        }
        if (end < stop) {
            end = stop;
            inner = shell->outer_slowness * pow(stop / shell->outer, shell->power);
        }
        descend(shell, parameter, shell->outer_slowness, inner, (*points)[count - 1].angle, end, points, &count,
                room);
        if (turns)
            break;
    }
    return count;
}

/* Turns points round, so that the last one is at angle 0. */
static void turn_round(struct point *points, size_t count)
{
    double last = points[count - 1].angle;
    for (size_t i = 0; i < count / 2; i++) {
        struct point point = points[i];
        points[i] = points[count - 1 - i];
        points[count - 1 - i] = point;
    }
    for (size_t i = 0; i < count; i++)
        points[i].angle = last - points[i].angle;
}

size_t trace(const struct tracer *tracer, enum phase phase, double radius, const struct arrival *arrival,
             struct point **points, size_t *room)
{
    const struct speeds *speeds = speeds_of(tracer->earth, phase);
    double parameter = arrival->parameter;
    if (arrival->up) {
        size_t count = way_down(speeds, parameter, radius, points, room);
        turn_round(*points, count);
        return count;
    }
    /* From the turning point to the surface, and before it, turned round, the part below the source. */
    size_t whole = way_down(speeds, parameter, 0, points, room), below = 0;
    double source = to_radius(speeds, parameter, radius).angle;
    double turn = (*points)[whole - 1].angle;
    turn_round(*points, whole);
    while (below + 1 < whole && (*points)[below + 1].radius < radius)
        below++;
    size_t count = whole + below + 1;
    if (count > *room)
        *points = resize(*points, (*room = count) * sizeof **points);
    for (size_t i = whole; i-- > 0;) {
        struct point point = (*points)[i];
        (*points)[below + 1 + i] = (struct point){turn - source + point.angle, point.radius};
    }
    for (size_t i = 0; i < below; i++) {
        struct point up = (*points)[2 * below + 1 - i];
        (*points)[1 + i] = (struct point){2 * (turn - source) - up.angle, up.radius};
    }
    (*points)[0] = (struct point){0, radius};
    return count;
}
