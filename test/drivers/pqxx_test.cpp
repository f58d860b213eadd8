// The scenario through libpqxx: bound parameters, prepared statements, plain SQL, a pipeline.
#include <cstddef>
#include <iostream>
#include <string>

#include <pqxx/pqxx>

namespace {

int failures = 0;

void check(const std::string &mode, const std::string &what, bool condition)
{
    std::cout << (condition ? "ok" : "not ok") << " - libpqxx " << mode << ": " << what << '\n';
    failures += condition ? 0 : 1;
}

const std::string claim_sql =
    "SELECT outcome, status, raw_body FROM idem_claim($1, $2, 'POST', '/payments', $3::jsonb)";
const std::string complete_sql = "SELECT idem_complete($1, $2, $3::int, raw_body => $4::bytea)";

class Session {
public:
    Session(const std::string &mode, pqxx::connection &connection) : mode_(mode), connection_(connection)
    {
        if (mode == "prepared") {
            connection.prepare("claim", claim_sql);
            connection.prepare("complete", complete_sql);
        }
    }

    pqxx::row claim(pqxx::transaction_base &work, const std::string &key, const std::string &body)
    {
        if (mode_ == "prepared") {
            return work.exec_prepared1("claim", "acme", key, body);
        }
        if (mode_ == "bound") {
            return work.exec_params1(claim_sql, "acme", key, body);
        }
        return work.exec1("SELECT outcome, status, raw_body FROM idem_claim('acme', " + work.quote(key) +
                          ", 'POST', '/payments', " + work.quote(body) + ")");
    }

    std::string complete(pqxx::transaction_base &work, const std::string &key, const std::string &hex)
    {
        if (mode_ == "prepared") {
            return work.exec_prepared1("complete", "acme", key, 201, hex)[0].as<std::string>();
        }
        if (mode_ == "bound") {
            return work.exec_params1(complete_sql, "acme", key, 201, hex)[0].as<std::string>();
        }
        return work
            .exec1("SELECT idem_complete('acme', " + work.quote(key) + ", 201, raw_body => " +
                   work.quote(hex) + ")")[0]
            .as<std::string>();
    }

    void scenario()
    {
        const std::string key = "pqxx-" + mode_ + "-0123456789abcdef";
        const std::string body = R"({"amount": 15, "key": "k"})";
        const std::string bytes = "\\x7b2270616964223a2031357d00ff";
        {
            pqxx::work work{connection_};
            check(mode_, "claimed", claim(work, key, body)[0].as<std::string>() == "claimed");
            work.exec0("INSERT INTO paid VALUES (" + work.quote(key) + ", 15)");
            check(mode_, "completed", complete(work, key, bytes) == "completed");
            work.commit();
        }
        {
            pqxx::work work{connection_};
            const pqxx::row replay = claim(work, key, R"({"key":"k","amount":15.0})");
            check(mode_, "replayed to the byte",
                  replay[0].as<std::string>() == "replay" && replay[1].as<int>() == 201 &&
                      replay[2].as<std::string>() == bytes);
            check(mode_, "another body", claim(work, key, R"({"amount": 16})")[1].as<int>() == 422);
            work.commit();
        }
        const std::string free = "pqxx-" + mode_ + "-rolled-back-01";
        {
            pqxx::work work{connection_};
            claim(work, free, body);
            // goes out of scope: rolled back
        }
        try {
            pqxx::work work{connection_};
            check(mode_, "a rollback frees the key",
                  claim(work, free, body)[0].as<std::string>() == "claimed");
            work.commit();
            check(mode_, "a commit without completion is refused", false);
        } catch (const pqxx::sql_error &error) {
            check(mode_, "a commit without completion is refused", std::string{error.sqlstate()} == "ID001");
        }
        pqxx::nontransaction autocommit{connection_};
        for (const char *outcome : {"completed", "replay"}) {
            const pqxx::row answer = autocommit.exec_params1(
                "SELECT outcome, status FROM idem_execute('acme', $1, 'POST', '/payments', $2::jsonb, "
                "'pay(jsonb)')",
                "pqxx-" + mode_ + "-executed-00001", body);
            check(mode_, std::string{"idem_execute in autocommit: "} + outcome,
                  answer[0].as<std::string>() == outcome && answer[1].as<int>() == 200);
        }
        check(mode_, "paid once",
              autocommit.exec_params1("SELECT count(*) FROM paid WHERE key = $1", key)[0].as<int>() == 1);
    }

private:
    std::string mode_;
    pqxx::connection &connection_;
};

} // namespace

int main()
{
    for (const char *mode : {"bound", "prepared", "plain"}) {
        pqxx::connection connection;
        Session{mode, connection}.scenario();
    }

    pqxx::connection connection;
    pqxx::work work{connection};
    pqxx::pipeline pipeline{work};
    const auto claimed =
        pipeline.insert("SELECT outcome FROM idem_claim('acme', 'pqxx-pipeline-000001', 'POST', '/p')");
    pipeline.insert("INSERT INTO paid VALUES ('pqxx-pipeline-000001', 15)");
    const auto completed = pipeline.insert("SELECT idem_complete('acme', 'pqxx-pipeline-000001', 201)");
    check("pipeline", "claimed", pipeline.retrieve(claimed)[0][0].as<std::string>() == "claimed");
    check("pipeline", "completed", pipeline.retrieve(completed)[0][0].as<std::string>() == "completed");
    pipeline.complete();
    work.commit();
    return failures == 0 ? 0 : 1;
}
