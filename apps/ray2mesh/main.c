/* Ray2mesh: traces seismic rays from earthquakes to stations through a spherical Earth, and counts them
 * in the cells of a mesh. The application of Coti, Herault, Cappello: MPI applications on grids, a
 * topology aware approach (2009), after Grunberg, Genaud, Mongenet: Seismic ray-tracing and Earth mesh
 * modeling on various parallel architectures (2004).
 *
 * Three phases: rank 0 makes the Earth, the mesh and the catalogue known; rays are spread over the ranks;
 * the ranks exchange their parts of the mesh. Rank 0 writes the result, which is the same for any number
 * of ranks. */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <mpi.h>

#include "exchange.h"
#include "memory.h"
#include "output.h"
#include "share.h"
#include "spread.h"

enum spread { VANILLA, HIERARCHICAL, POOL, SPREADS };

static const char *const spread_names[SPREADS] = {"vanilla", "hierarchical", "pool"};

struct options {
    enum spread spread;
    int chunk, json;
    double cell, layer;
    long cost_us;
    const char *out;
    struct files files;
};

static const char usage[] =
    "usage: ray2mesh [options] MODEL EVENTS STATIONS\n"
    "\n"
    "Traces rays of P, PKP and S from each earthquake to each station.\n"
    "\n"
    "  MODEL     speeds by depth, in the format tvel, such as ak135.tvel\n"
    "  EVENTS    earthquakes in the format ZMAP\n"
    "  STATIONS  stations as Network|Station|Latitude|Longitude\n"
    "\n"
    "  --spread HOW   who gives rays to whom: vanilla (rank 0 to all; the default),\n"
    "                 hierarchical (over a boss at each site), pool (a pool of isthmus)\n"
    "  --chunk N      rays that a worker gets at once (50)\n"
    "  --cell DEG     width of the mesh's cells (5)\n"
    "  --layer KM     their height (200)\n"
    "  --out DIR      write DIR/coverage.vtk and DIR/times.csv\n"
    "  --cost US      sleep for so many microseconds for each ray\n"
    "  --json         print numbers as JSON\n"
    "  --help         print this\n";

static const struct option long_options[] = {
    {"spread", required_argument, NULL, 's'}, {"chunk", required_argument, NULL, 'n'},
    {"cell", required_argument, NULL, 'c'},   {"layer", required_argument, NULL, 'l'},
    {"out", required_argument, NULL, 'o'},    {"cost", required_argument, NULL, 'u'},
    {"json", no_argument, NULL, 'j'},         {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

/* Ends all ranks, with a message of the one that says so. */
static void end_all(int rank, const char *message, int status)
{
    if (rank == 0)
        fprintf(status ? stderr : stdout, "%s", message);
    fflush(NULL);
    MPI_Finalize();
    exit(status);
}

static void end_badly(int rank, const char *message)
{
    char line[1024];
    snprintf(line, sizeof line, "ray2mesh: %s\n", message);
    end_all(rank, line, 2);
}

/* A number from `least` to `most`. */
static double number(int rank, const char *name, const char *text, double least, double most)
{
    char *end, message[256];
    double value = strtod(text, &end);
    if (end == text || *end || !(value >= least && value <= most)) {
        snprintf(message, sizeof message, "--%s is %g to %g, not %.40s", name, least, most, text);
        end_badly(rank, message);
    }
    return value;
}

/* The same without a fraction. */
static int whole(int rank, const char *name, const char *text, int least, int most)
{
    char message[256];
    double value = number(rank, name, text, least, most);
    if (value != (int)value) {
        snprintf(message, sizeof message, "--%s is a whole number, not %.40s", name, text);
        end_badly(rank, message);
    }
    return (int)value;
}

static enum spread spread_of(int rank, const char *name)
{
    for (int spread = 0; spread < SPREADS; spread++)
        if (strcmp(name, spread_names[spread]) == 0 && (spread != POOL || with_pools))
            return spread;
    end_badly(rank, with_pools ? "--spread is vanilla, hierarchical or pool"
                               : "--spread is vanilla or hierarchical: this program was built without pools");
    return VANILLA;
}

static struct options options_of(int rank, int argc, char **argv)
{
    struct options options = {.chunk = 50, .cell = 5, .layer = 200};
    int option;
    opterr = rank == 0;
    while ((option = getopt_long(argc, argv, "h", long_options, NULL)) != -1) {
        switch (option) {
        case 's': options.spread = spread_of(rank, optarg); break;
        case 'n': options.chunk = whole(rank, "chunk", optarg, 1, 100000); break;
        case 'c': options.cell = number(rank, "cell", optarg, 0.5, 90); break;
        case 'l': options.layer = number(rank, "layer", optarg, 10, 6400); break;
        case 'o': options.out = optarg; break;
        case 'u': options.cost_us = whole(rank, "cost", optarg, 0, 1000000); break;
        case 'j': options.json = 1; break;
        case 'h': end_all(rank, usage, 0); break;
        default: end_all(rank, usage, 2);
        }
    }
    if (argc - optind != 3)
        end_all(rank, usage, 2);
    options.files = (struct files){argv[optind], argv[optind + 1], argv[optind + 2]};
    return options;
}

/* The files that rank 0 writes; NULL if it doesn't. */
struct outputs {
    FILE *coverage, *times;
};

/* Reads what there is to trace, and opens what is to be written. Returns 0, or -1 with the reason. */
static int open_all(const struct options *options, struct survey *survey, struct outputs *outputs, char *error,
                    size_t room)
{
    if (survey_read(&options->files, survey, error, room) < 0)
        return -1;
    survey->grid = grid_of(survey->samples[survey->sample_count - 1].depth, options->cell, options->layer);
    if (grid_cells(&survey->grid) > MOST_CELLS) {
        snprintf(error, room, "--cell and --layer make more than %d cells", MOST_CELLS);
        return -1;
    }
    if (!options->out)
        return 0;
    outputs->coverage = output_open(options->out, "coverage.vtk");
    outputs->times = outputs->coverage ? output_open(options->out, "times.csv") : NULL;
    if (outputs->times)
        return 0;
    snprintf(error, room, "%s: %s", options->out, strerror(errno));
    return -1;
}

/* Does so at rank 0, or ends all ranks with the reason. */
static void prepare(int rank, const struct options *options, struct survey *survey, struct outputs *outputs)
{
    char error[1024] = "";
    int wrong = rank == 0 && open_all(options, survey, outputs, error, sizeof error) < 0;
    MPI_Bcast(&wrong, 1, MPI_INT, 0, MPI_COMM_WORLD);
    if (wrong)
        end_badly(rank, error);
}

/* When each phase began, and the last one ended. */
struct clock {
    double shares, spreads, exchanges, ends;
};

static void report(const struct options *options, const struct survey *survey, const struct ranks *ranks,
                   const struct clock *clock)
{
    int size;
    double rays = survey_rays(survey), share = clock->spreads - clock->shares,
           spread = clock->exchanges - clock->spreads, exchange = clock->ends - clock->exchanges;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    const char *format = options->json
                             ? "{\"ranks\": %d, \"spread\": \"%s\", \"bosses\": %d, \"rays\": %.0f, "
                               "\"share_s\": %.6f, \"spread_s\": %.6f, \"exchange_s\": %.6f, \"total_s\": %.6f}\n"
                             : "%d ranks, %s, %d bosses: %.0f rays; %.3f s to share what is known, %.3f s to "
                               "trace, %.3f s to exchange the mesh; %.3f s in all\n";
    printf(format, size, spread_names[options->spread], ranks->all_bosses, rays, share, spread, exchange,
           clock->ends - clock->shares);
}

static int write_all(const struct options *options, const struct outputs *outputs, const struct survey *survey,
                     const struct work *work, const struct result *times)
{
    if (write_coverage(outputs->coverage, &work->mesh) < 0 || write_times(outputs->times, survey, times) < 0) {
        fprintf(stderr, "ray2mesh: %s: %s\n", options->out, strerror(errno));
        return 1;
    }
    printf("%s/coverage.vtk and times.csv are written\n", options->out);
    return 0;
}

static struct result *times_of(int rank, const struct survey *survey)
{
    return allocate(rank == 0 ? (size_t)survey_rays(survey) * sizeof(struct result) : 0);
}

int main(int argc, char **argv)
{
    int rank, size, status = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    struct options options = options_of(rank, argc, argv);
    struct survey survey = {0};
    struct outputs outputs = {NULL, NULL};
    struct clock clock;
    if (size < 2)
        end_badly(rank, "it needs two ranks: the first one doesn't trace");
    prepare(rank, &options, &survey, &outputs);

    MPI_Barrier(MPI_COMM_WORLD);
    clock.shares = MPI_Wtime();
    survey_share(MPI_COMM_WORLD, &survey);
    struct work *work = work_of(&survey, options.cost_us);
    struct ranks ranks = ranks_of(MPI_COMM_WORLD, options.spread == HIERARCHICAL);
    struct result *times = times_of(rank, &survey);
    clock.spreads = MPI_Wtime();
    if (options.spread == POOL)
        spread_by_pool(MPI_COMM_WORLD, work, options.chunk, times);
    else
        spread_by_messages(MPI_COMM_WORLD, &ranks, work, options.chunk, times);
    clock.exchanges = MPI_Wtime();
    if (options.spread != POOL)
        exchange_mesh(MPI_COMM_WORLD, &work->mesh);
    clock.ends = MPI_Wtime();

    if (rank == 0)
        report(&options, &survey, &ranks, &clock);
    if (rank == 0 && options.out)
        status = write_all(&options, &outputs, &survey, work, times);
    free(times);
    work_free(work);
    ranks_free(&ranks);
    survey_free(&survey);
    MPI_Finalize();
    return status;
}
