//! Invalid `filter` and `filter-sequence` lines, `cache` sections, and rules that refer to them.

/// The whole configuration, and the messages in one-line form.
pub(crate) const CASES: &[(&str, &[&str])] = &[
    (
        "frontend f\n bind :80\n timeout client 1s\n mode http\n filter trce\n filter spoe engine x\n filter trace quite\n filter bwlim-in a default-limit 1k\n filter bwlim-out b limit 1k key src table t\n filter bwlim-out c default-limit 1k default-period 1s\n filter bwlim-in c default-limit 0\n filter bwlim-in c default-limit 1 default-period 1\n filter-sequence request trace,bwlim-out\n http-request set-bandwidth-limit d\n",
        &[
            "[ALERT] [5] : 'filter' : unknown keyword 'trce'; did you mean 'trace' maybe ?.",
            "[ALERT] [6] : 'filter' : 'spoe' : missing config file",
            "[ALERT] [7] : 'filter trace' : unknown argument 'quite'.",
            "[ALERT] [8] : 'filter bwlim-in' : <default-limit> and <default-period> must be set for per-stream bandwidth limitations.",
            "[ALERT] [11] : 'filter' : '0' expects a value greater than 0.",
            "[ALERT] [12] : 'filter' : bwlim filter 'c' already exists in this proxy.",
            "[ALERT] [13] : 'filter-sequence' : unable to find filter 'trace' in the proxy.",
            "[ALERT] Proxy f : unable to find table 't' referenced by bwlim filter 'b'",
            "[ALERT] Proxy 'f': unable to find bwlim filter 'd' referenced by set-bandwidth-limit rule.",
        ],
    ),
    ("cache c\n max-age 5\n", &["[ALERT] Size not specified for cache 'c'"]),
    (
        "cache c\n total-max-size 1\n max-object-size 524289\n",
        &["[ALERT] \"max-object-size\" is limited to an half of \"total-max-size\" => 524288"],
    ),
    (
        "cache c\n total-max-size 1\n early-hints only\n process-range on\n max-age 5\n",
        &["[DIAG] [4] : 'process-range' has no effect with 'early-hints only'; it caches no responses"],
    ),
    (
        "cache c\n total-max-size 1\n disk /d\n",
        &["[ALERT] [3] : add the size of the directory, such as 'size 10g'"],
    ),
    (
        "cache c\n total-max-size 1\n disk /d size 4k\n",
        &["[ALERT] [3] : the cache directory is too small: 4096 bytes, the minimum is 1m"],
    ),
    (
        "cache c\n total-max-size 1\n disk /d size 1m\ncache e\n total-max-size 1\n disk /d size 2m\n",
        &[
            "[ALERT] [6] : two caches cannot use the same directory '/d'; use a separate directory for each cache; already used here at [test.cfg:3]",
        ],
    ),
    (
        "cache c\n total-max-size 1\n disk /d size 1m\n early-hints only\n revalidation on\n",
        &[
            "[DIAG] [3] : 'disk' has no effect with 'early-hints only'; it caches no responses",
            "[DIAG] [5] : 'revalidation' has no effect with 'early-hints only'; it caches no responses",
        ],
    ),
    (
        "cache c\n total-max-size 1\ncache c\n total-max-size 1\n",
        &["[ALERT] [3] : Duplicate cache name 'c'."],
    ),
    (
        "cache c\n total-max-size 1\nlisten l\n bind :80\n mode http\n http-request cache-use d\n",
        &["[ALERT] config: Proxy 'l': unable to find the cache 'd' referenced by the filter 'cache'."],
    ),
    (
        "cache c\n total-max-size 1\nlisten l\n bind :80\n mode http\n filter trace\n http-request cache-use c\n",
        &["[ALERT] config: proxy 'l': require an explicit filter declaration to use the cache 'c'."],
    ),
    (
        "cache c\n total-max-size 1\nlisten l\n bind :80\n mode http\n compression algo gzip\n filter compression\n filter cache c\n",
        &["[ALERT] config: proxy 'l': unable to enable the compression filter before the cache 'c'."],
    ),
    (
        "cache c\n total-max-size 1\nlisten l\n bind :80\n mode http\n compression algo gzip\n filter cache c\n filter comp-res\n filter-sequence response comp-res,cache\n",
        &["[ALERT] config: proxy 'l': unable to enable the compression filter before the cache 'c'."],
    ),
    (
        "listen l\n bind :80\n mode http\n compression algo gzip\n filter trace\n filter compression\n filter-sequence request comp-req,tarce\n filter-sequence response trace,compres\n",
        &[
            "[ALERT] [7] : 'filter-sequence' : unable to find filter 'tarce' in the proxy.",
            "[ALERT] [8] : 'filter-sequence' : unable to find filter 'compres' in the proxy.",
        ],
    ),
    (
        "listen l\n bind :80\n mode http\n filter cache d\n",
        &["[ALERT] config: proxy 'l': unable to find the cache 'd' referenced by the filter 'cache'."],
    ),
];
