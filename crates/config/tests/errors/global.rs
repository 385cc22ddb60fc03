//! Invalid lines in `global`.

/// The whole configuration, and the messages in one-line form.
pub(crate) const CASES: &[(&str, &[&str])] = &[
    ("global\n balanse x\n", &["[ALERT] [2] : unknown keyword 'balanse' in 'global' section"]),
    (
        "global\n set-var proc.a int(1)\n set-var txn.a int(1)\n set-var-fmt sess.a x\n",
        &[
            "[ALERT] [3] : 'set-var': cannot set variable 'txn.a', only scope 'proc' is permitted in the global section.",
            "[ALERT] [4] : 'set-var-fmt': cannot set variable 'sess.a', only scope 'proc' is permitted in the global section.",
        ],
    ),
    (
        "global\n dns-accept-family ipv5\n",
        &[
            "[ALERT] [2] : 'dns-accept-family' expects a comma-delimited list of 'ipv4', 'ipv6' and 'auto' (got 'ipv5').",
        ],
    ),
    (
        "global\n cpu-map auto:1/1-4 0\n",
        &[
            "[ALERT] [2] : 'auto:' needs as many CPUs as threads or groups, but 4 threads and 1 CPUs are given",
        ],
    ),
    (
        "global\n cpu-map x 0\n",
        &["[ALERT] [2] : 'x' is not 'all', 'odd', 'even', a number or a range such as '1-4'"],
    ),
    (
        "global\n cpu-map 1 z\n",
        &[
            "[ALERT] [2] : invalid set of CPUs 'z'; use a number or a range such as '0-3'; CPUs are numbered from 0",
        ],
    ),
    (
        "global\n cpu-map 1 0-1023 1024\n cpu-map 1 18446744073709551615\n cpu-set drop-cpu 1024\n cpu-set drop-core 5000\n",
        &[
            "[ALERT] [2] : cpu-map : supports CPU numbers from 0 to 1023.",
            "[ALERT] [3] : cpu-map : supports CPU numbers from 0 to 1023.",
            "[ALERT] [4] : 'cpu-set drop-cpu': supports CPU numbers from 0 to 1023.",
        ],
    ),
    (
        "global\n cpu-map 65 0\n cpu-map 1/65 0\n cpu-map 64/60-70 0\n cpu-map 1-/64- 0, 1\n",
        &[
            "[ALERT] [2] : cpu-map : '65' is not a valid number/range. It supports numbers from 1 to 64.",
            "[ALERT] [3] : cpu-map : '65' is not a valid number/range. It supports numbers from 1 to 64.",
            "[ALERT] [4] : cpu-map : '60-70' is not a valid number/range. It supports numbers from 1 to 64.",
        ],
    ),
    ("global\n thread-group 1 1-66\n", &["[ALERT] [2] : 'thread-group 1' has 66 threads, the maximum is 64"]),
    (
        "global\n cpu-set only-nodes 0\n",
        &[
            "[ALERT] [2] : unknown argument 'only-nodes' for 'cpu-set'; did you mean 'only-node' maybe ?; one of: drop-cpu, only-cpu, drop-node, only-node, drop-cluster, only-cluster, drop-core, only-core, drop-thread, only-thread, reset",
        ],
    ),
    (
        "global\n nbthread 2\n thread-groups 3\n",
        &["[ALERT] 3 thread groups need at least as many threads, but there are only 2"],
    ),
    (
        "global\n localpeer\n localpeer a b\n",
        &[
            "[ALERT] [2] : 'localpeer' expects a name as argument.",
            "[ALERT] [3] : 'localpeer' cannot handle unexpected argument 'b'.",
        ],
    ),
    (
        "global\n maxconn 5\n maxconn 6\n uid 0\n user root\n",
        &[
            "[WARNING] [3] : 'maxconn' already specified. Continuing.",
            "[WARNING] [5] : user/uid already specified. Continuing.",
        ],
    ),
    ("global\n crt-base /a\nglobal\n crt-base /b\n", &["[ALERT] [4] : 'crt-base' already specified."]),
    (
        "global\n nbproc 2\n",
        &[
            "[ALERT] [2] : the 'nbproc' directive is not supported anymore since HAProxy 2.5. There is one process; use `nbthread` to set the number of threads.",
        ],
    ),
    (
        "global\n ssl-engine X\n",
        &[
            "[DIAG] [2] : 'ssl-engine' has no effect: OpenSSL removed engines in favor of providers ('ssl-provider')",
        ],
    ),
    ("global\n daemon x\n", &["[ALERT] [2] : 'daemon' cannot handle unexpected argument 'x'."]),
    ("global\n log 127.0.0.1 local9\n", &["[ALERT] [2] : unknown log facility 'local9'"]),
];
