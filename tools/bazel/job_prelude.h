// prelude.h and the largest messages, whose headers take a compiler longer than all others together.
#include "proto/job.pb.h"
#include "proto/parameter_server.pb.h"
#include "proto/plan.pb.h"
#include "proto/program.pb.h"
#include "tools/bazel/prelude.h"
