"""Everything that runs Millrace on one machine: servers, the local stack, workloads, demonstration, benchmark."""
