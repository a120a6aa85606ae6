/* The simulated grid, as SimGrid loads it: smpirun -platform grid.so. Each rank is a host of its own, and each pair of
 * ranks has a connection in each direction, which carries one message after the other, as TCP does. SimGrid's own
 * platforms have every message share the links with all others, also with those before it on its connection.
 *
 * ISTHMUS_SIMULATED_GRID names a file of four lines. Delays are in seconds, rates in bytes per second:
 *
 *   ranks SITES NODES_OF_A_SITE RANKS_OF_A_NODE
 *   access DELAY RATE       of a site, in each direction
 *   lan DELAY RATE          of a node, in each direction
 *   memory DELAY RATE       between the ranks of a node, which don't share it
 *
 * Host rI.nJ.sK is rank I of node J of site K. Written for the API of SimGrid 3.32. */
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>

#include <simgrid/kernel/routing/NetPoint.hpp>
#include <simgrid/kernel/routing/NetZoneImpl.hpp>
#include <simgrid/s4u.hpp>

namespace {

namespace routing = simgrid::kernel::routing;
using simgrid::s4u::Link;

/* A pair's key has 32 bits for each of the two. */
constexpr std::uint64_t MOST_RANKS = UINT64_C(1) << 32;
/* No connection limits a rate. */
constexpr double UNLIMITED = 1e15;
constexpr double SPEED = 1e9; /* of a host, in operations per second: computation isn't simulated */

struct Shape {
    std::uint64_t sites, nodes, slots;
};

struct Properties {
    double delay, rate;
};

class Grid : public routing::NetZoneImpl {
    Shape shape_;
    struct Duplex {
        Link *out, *in;
    };
    std::vector<Duplex> access_, lan_;
    std::vector<Link *> memory_;
    /* Links can't be made in a zone that is in use, so those of connections are in one that is never put to use. */
    simgrid::s4u::NetZone *connections_ = nullptr;
    std::unordered_map<std::uint64_t, Link *> connection_;

    Link *make_link(const std::string &name, const Properties &properties)
    {
        return create_link(name, {properties.rate})->set_latency(properties.delay);
    }

    Duplex make_duplex(const std::string &name, const Properties &properties)
    {
        return {make_link("out." + name, properties), make_link("in." + name, properties)};
    }

    /* The connection of a pair, which is made when its first message is sent. */
    Link *connection(std::uint64_t from, std::uint64_t to)
    {
        auto [place, is_new] = connection_.try_emplace(from << 32 | to, nullptr);
        if (is_new) {
            auto name = "c" + std::to_string(from) + "." + std::to_string(to);
            place->second = connections_->create_link(name, UNLIMITED)->set_concurrency_limit(1)->seal();
        }
        return place->second;
    }

    void get_local_route(const routing::NetPoint *source, const routing::NetPoint *destination, routing::Route *into,
                         double *latency) override
    {
        auto add = [into, latency](const Link *link) {
            into->link_list_.push_back(link->get_impl());
            if (latency)
                *latency += link->get_latency();
        };
        /* Hosts are all that is in this zone, in the order in which they were made. */
        std::uint64_t from = source->id(), to = destination->id();
        std::uint64_t node_from = from / shape_.slots, node_to = to / shape_.slots;
        std::uint64_t site_from = node_from / shape_.nodes, site_to = node_to / shape_.nodes;
        if (node_from == node_to) {
            add(memory_.at(node_from));
        } else {
            add(lan_.at(node_from).out);
            if (site_from != site_to) {
                add(access_.at(site_from).out);
                add(access_.at(site_to).in);
            }
            add(lan_.at(node_to).in);
        }
        add(connection(from, to));
    }

public:
    Grid(const Shape &shape, const Properties &access, const Properties &lan, const Properties &memory)
        : NetZoneImpl("grid"), shape_(shape)
    {
        for (std::uint64_t site = 0; site < shape.sites; site++) {
            auto site_name = "s" + std::to_string(site);
            access_.push_back(make_duplex(site_name, access));
            for (std::uint64_t node = 0; node < shape.nodes; node++) {
                auto node_name = "n" + std::to_string(node) + "." + site_name;
                lan_.push_back(make_duplex(node_name, lan));
                memory_.push_back(make_link("memory." + node_name, memory));
                memory_.back()->set_sharing_policy(Link::SharingPolicy::FATPIPE);
                for (std::uint64_t slot = 0; slot < shape.slots; slot++)
                    create_host("r" + std::to_string(slot) + "." + node_name, {SPEED});
            }
        }
        connections_ = simgrid::s4u::create_empty_zone("connections");
        connections_->get_impl()->set_network_model(get_network_model());
    }
};

Properties read_link(std::istream &file, const std::string &what)
{
    std::string word;
    Properties properties{};
    if (!(file >> word >> properties.delay >> properties.rate) || word != what || !(properties.delay >= 0) || !(properties.rate > 0))
        throw std::runtime_error("ISTHMUS_SIMULATED_GRID: no line '" + what + " DELAY RATE' where it is expected");
    return properties;
}

} // namespace

extern "C" void load_platform(const simgrid::s4u::Engine &)
{
    const char *name = std::getenv("ISTHMUS_SIMULATED_GRID");
    if (!name)
        throw std::runtime_error("ISTHMUS_SIMULATED_GRID doesn't name the file that describes the grid");
    std::ifstream file(name);
    if (!file)
        throw std::runtime_error(std::string("ISTHMUS_SIMULATED_GRID: cannot read ") + name);
    std::string word;
    Shape shape{};
    if (!(file >> word >> shape.sites >> shape.nodes >> shape.slots) || word != "ranks")
        throw std::runtime_error(std::string(name) + ": no line 'ranks SITES NODES RANKS'");
    for (auto number : {shape.sites, shape.nodes, shape.slots})
        if (number == 0 || number > 10000)
            throw std::runtime_error(std::string(name) + ": between 1 and 10000 sites, nodes of a site, and ranks of a node");
    if (shape.sites * shape.nodes * shape.slots > MOST_RANKS)
        throw std::runtime_error(std::string(name) + ": too many ranks");
    auto access = read_link(file, "access");
    auto lan = read_link(file, "lan");
    auto memory = read_link(file, "memory");
    /* SimGrid takes the first zone that is made, and frees it in the end. */
    new Grid(shape, access, lan, memory);
}
