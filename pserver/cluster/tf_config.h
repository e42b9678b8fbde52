// TensorFlow's variable TF_CONFIG: the addresses of a cluster and the place of this process in it, as JSON.
//
//   {"cluster": {"chief": ["a:1"], "worker": ["b:1", "c:1"], "ps": ["d:1"]}, "task": {"type": "worker", "index": 0}}
//
//   in TF_CONFIG                        here
//   cluster.ps                          servers, in order of their index
//   cluster.chief or .master, .worker   trainers: the chief is trainer 0, and the workers follow
//   task ps                             a server: the role, and its index
//   task chief, master, worker          a trainer: the role, and its id
//   task evaluator                      no process of a job
//
// cluster.evaluator and the other members (environment, rpc_layer, ...) are ignored.
#ifndef WEIR_PSERVER_CLUSTER_TF_CONFIG_H_
#define WEIR_PSERVER_CLUSTER_TF_CONFIG_H_

#include "absl/status/statusor.h"
#include "pserver/cluster/environment.h"

namespace weir {

// Each is missing if TF_CONFIG does not say it; lists are joined by commas.
struct TfConfig {
  // "pserver" or "trainer".
  MaybeSourced role;
  MaybeSourced servers, trainers;
  MaybeSourced number_of_trainers;
  // At most one of them: the place of this process.
  MaybeSourced server_id, trainer_id;
  // The task of this process is to evaluate: it has no role.
  bool evaluates = false;
};

// InvalidArgument names the member, what is expected and what was found: text that is no JSON or no object, a list that
// is none of host:port, a name of a process or a task that TensorFlow does not know, two chiefs, a task that the
// cluster does not list. The addresses are not checked.
absl::StatusOr<TfConfig> ReadTfConfig(const Environment& environment);

}  // namespace weir

#endif  // WEIR_PSERVER_CLUSTER_TF_CONFIG_H_
