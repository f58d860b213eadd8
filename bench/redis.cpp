// The time that a key adds to a request: the business function alone, with two Redis commands around it (SET NX before,
// SET after, as middleware does), and by idem_execute(). The same clients, the same load, interleaved rounds.
//
//   redis CLIENTS ROUNDS SECONDS REDIS_SOCKET    (the server by PGHOST and its kind)
#include <atomic>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <hiredis/hiredis.h>
#include <libpq-fe.h>

namespace {

using Clock = std::chrono::steady_clock;

enum class Way { function, redis, execute };
constexpr Way ways[] = {Way::function, Way::redis, Way::execute};
constexpr const char *names[] = {"the function alone", "with two Redis commands", "idem_execute"};

[[noreturn]] void fail(const char *what, const char *why)
{
    std::fprintf(stderr, "%s: %s\n", what, why);
    std::exit(1);
}

class Client {
public:
    Client(int number, const char *socket)
        : random_(static_cast<std::uint64_t>(number) * 7919 + static_cast<std::uint64_t>(std::time(nullptr))),
          database_(PQconnectdb("")), redis_(redisConnectUnix(socket))
    {
        if (PQstatus(database_) != CONNECTION_OK) {
            fail("database", PQerrorMessage(database_));
        }
        if (redis_ == nullptr || redis_->err != 0) {
            fail("redis", redis_ == nullptr ? "no memory" : redis_->errstr);
        }
        prepare("function", "SELECT pay($1)");
        prepare("execute",
                "SELECT status, headers, body FROM idem_execute('acme', $2, 'POST', '/payments', $1, "
                "'pay(jsonb)')");
    }
    Client(const Client &) = delete;
    Client &operator=(const Client &) = delete;
    ~Client()
    {
        redisFree(redis_);
        PQfinish(database_);
    }

    void request(Way way)
    {
        const std::string body = "{\"account\": " + std::to_string(random_() % 100000 + 1) +
                                 ", \"amount\": 1500, \"currency\": \"EUR\"}";
        const std::string key = "bench-" + std::to_string(random_()) + "-0123456789";
        switch (way) {
        case Way::function:
            run("function", body, nullptr);
            break;
        case Way::redis:
            command("SET %s in-progress NX EX 60", key.c_str());
            run("function", body, nullptr);
            command("SET %s {\"status\":200,\"body\":{\"payment\":1}} EX 604800", key.c_str());
            break;
        case Way::execute:
            run("execute", body, key.c_str());
            break;
        }
    }

private:
    void prepare(const char *name, const char *sql)
    {
        PGresult *result = PQprepare(database_, name, sql, 0, nullptr);
        if (PQresultStatus(result) != PGRES_COMMAND_OK) {
            fail("prepare", PQerrorMessage(database_));
        }
        PQclear(result);
    }

    void run(const char *name, const std::string &body, const char *key)
    {
        const char *values[] = {body.c_str(), key};
        PGresult *result =
            PQexecPrepared(database_, name, key == nullptr ? 1 : 2, values, nullptr, nullptr, 0);
        if (PQresultStatus(result) != PGRES_TUPLES_OK) {
            fail(name, PQerrorMessage(database_));
        }
        PQclear(result);
    }

    void command(const char *format, const char *key)
    {
        auto *reply = static_cast<redisReply *>(redisCommand(redis_, format, key));
        if (reply == nullptr || reply->type != REDIS_REPLY_STATUS) {
            fail("redis", reply == nullptr ? redis_->errstr : "the key was taken");
        }
        freeReplyObject(reply);
    }

    std::mt19937_64 random_;
    PGconn *database_;
    redisContext *redis_;
};

// Mean microseconds that a request took.
double measure(std::vector<Client *> &clients, Way way, double seconds)
{
    std::atomic<long> requests{0};
    std::vector<std::thread> threads;
    const auto end =
        Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
    for (Client *client : clients) {
        threads.emplace_back([client, way, end, &requests] {
            long mine = 0;
            for (; Clock::now() < end; mine++) {
                client->request(way);
            }
            requests += mine;
        });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
    return seconds * 1e6 * static_cast<double>(clients.size()) / static_cast<double>(requests.load());
}

double median(std::vector<double> values)
{
    std::sort(values.begin(), values.end());
    const std::size_t middle = values.size() / 2;
    return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

} // namespace

int main(int argc, char **argv)
{
    if (argc != 5) {
        std::fprintf(stderr, "usage: redis CLIENTS ROUNDS SECONDS REDIS_SOCKET\n");
        return 2;
    }
    const int client_count = std::atoi(argv[1]);
    const int rounds = std::atoi(argv[2]);
    const double seconds = std::atof(argv[3]);
    std::vector<Client *> clients;
    for (int i = 0; i < client_count; i++) {
        clients.push_back(new Client(i, argv[4]));
    }

    std::vector<double> times[3];
    std::vector<double> added[3];
    for (int round = 0; round < rounds; round++) {
        for (std::size_t i = 0; i < 3; i++) {
            times[i].push_back(measure(clients, ways[i], seconds));
        }
        for (std::size_t i = 0; i < 3; i++) {
            added[i].push_back(times[i].back() - times[0].back());
        }
    }
    for (Client *client : clients) {
        delete client;
    }

    std::printf("%-26s %14s %14s   (%d clients, median of %d rounds)\n", "a request", "us", "us added",
                client_count, rounds);
    for (std::size_t i = 0; i < 3; i++) {
        std::printf("%-26s %14.0f %14.0f\n", names[i], median(times[i]), median(added[i]));
    }
    std::printf("added by idem_execute / by two Redis commands: %.2f (less than 1 is the aim)\n",
                median(added[2]) / median(added[1]));
    return 0;
}
