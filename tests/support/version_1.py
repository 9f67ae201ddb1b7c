"""A ledger as version 1 wrote it, row by row. Its meaning must never change, so neither may this file."""

META = [
    ("identity", "bc9b0de3679988632a1d734b81142478"),
    ("secret", "e7b49fd04056ea06fae1d85ffcb3b6efd7cc77ae471bdf2dc522a127563cb898"),
]

ENTRIES = [
    (
        1,
        "2026-11-16T02:41:58+00:00",
        "ada@lab",
        "budget",
        "adult",
        "",
        '{"epsilon": 3.0, "delta": 1e-05, "adjacency": "add_remove", "order": null}',
        "5d2f0354fbf23d24466dbd20c5b2f5eaed596d22a4331c756732bf3a6ff05058",
        "b32bc4a438b31914e636764578b2c2aca8d17fb8f380cdb1d212bd78c60ccc11",
    ),
    (
        2,
        "2026-11-16T02:41:58+00:00",
        "ada@lab",
        "data",
        "adult",
        "",
        '{"fingerprint": "c726ed3b25f4ac5c8dc5dfa229b3fead8ae659f6a08ca7a5e22a18f80d5fb3a0"}',
        "b32bc4a438b31914e636764578b2c2aca8d17fb8f380cdb1d212bd78c60ccc11",
        "c6c4a357de730fbe033c0f874f9767fb70c0592dab7018265b88d0b3e8694464",
    ),
    (
        3,
        "2026-11-16T02:41:59+00:00",
        "ada@lab",
        "reserve",
        "adult",
        "first",
        '{"about": {"method": "dpsgd"}, "event": {"version": 1, "event": "repeated", "times": 10, "'
        'inside": {"event": "sampled", "rate": 0.01, "inside": {"event": "gaussian", "multiplier": '
        '1.1, "adjacency": "add_remove"}}}, "course": {"blocks": [[{"version": 1, "event": "sampled'
        '", "rate": 0.01, "inside": {"event": "gaussian", "multiplier": 1.1, "adjacency": "add_remo'
        've"}}, 10, 1]], "is_repeatable": false}, "drawn": [], "start": 0, "stop": 10, "attempt": "'
        '9fc1abadcece", "forgiven": 0}',
        "c6c4a357de730fbe033c0f874f9767fb70c0592dab7018265b88d0b3e8694464",
        "9bb70a3f1cbe2d94436735dd6bcac25c8e3fda856175b3eedc7a7118ce00077c",
    ),
    (
        4,
        "2026-11-16T02:41:59+00:00",
        "ada@lab",
        "settle",
        "adult",
        "first",
        '{"about": {"method": "dpsgd"}, "event": {"version": 1, "event": "repeated", "times": 4, "i'
        'nside": {"event": "sampled", "rate": 0.01, "inside": {"event": "gaussian", "multiplier": 1'
        '.1, "adjacency": "add_remove"}}}, "course": {"blocks": [[{"version": 1, "event": "sampled"'
        ', "rate": 0.01, "inside": {"event": "gaussian", "multiplier": 1.1, "adjacency": "add_remov'
        'e"}}, 10, 1]], "is_repeatable": false}, "drawn": [[0, 4]]}',
        "9bb70a3f1cbe2d94436735dd6bcac25c8e3fda856175b3eedc7a7118ce00077c",
        "8841681a4f198dbe4d0602f6f456d9ec517f17d8e480af4ac73bf75ea7ff04e6",
    ),
    (
        5,
        "2026-11-16T02:42:00+00:00",
        "ada@lab",
        "reserve",
        "adult",
        "second",
        '{"about": {"method": "dpsgd"}, "event": {"version": 1, "event": "repeated", "times": 20, "'
        'inside": {"event": "sampled", "rate": 0.02, "inside": {"event": "gaussian", "multiplier": '
        '0.9, "adjacency": "add_remove"}}}, "course": {"blocks": [[{"version": 1, "event": "sampled'
        '", "rate": 0.02, "inside": {"event": "gaussian", "multiplier": 0.9, "adjacency": "add_remo'
        've"}}, 20, 1]], "is_repeatable": false}, "drawn": [], "start": 0, "stop": 20, "attempt": "'
        '7de14a8ccb81", "forgiven": 0}',
        "8841681a4f198dbe4d0602f6f456d9ec517f17d8e480af4ac73bf75ea7ff04e6",
        "b333ad7029288fba0e0fce9e3818f735cf83e26075d9e369e47c4d52f79845a0",
    ),
    (
        6,
        "2026-11-16T02:42:00+00:00",
        "ada@lab",
        "settle",
        "adult",
        "third",
        '{"about": {"note": "a table"}, "event": {"version": 1, "event": "composed", "parts": [{"ev'
        'ent": "product_noise", "density": {"family": "laplace", "scale": 3.0}, "shifts": [1.0], "a'
        'djacency": "add_remove"}, {"event": "gaussian", "multiplier": 9.0, "adjacency": "add_remov'
        'e"}]}, "course": {"blocks": [[{"version": 1, "event": "composed", "parts": [{"event": "pro'
        'duct_noise", "density": {"family": "laplace", "scale": 3.0}, "shifts": [1.0], "adjacency":'
        ' "add_remove"}, {"event": "gaussian", "multiplier": 9.0, "adjacency": "add_remove"}]}, 1, '
        '1]], "is_repeatable": false}, "drawn": [[0, 1]]}',
        "b333ad7029288fba0e0fce9e3818f735cf83e26075d9e369e47c4d52f79845a0",
        "54524d18c0c90fd30e4ad5e9a0166f1891c4b7bdf52f3dfd66cbfbec0a81f3f7",
    ),
]

LIVE = [("second", "7de14a8ccb81", 3, "9fec665b6e0bee2fd85d85deec5fb78377ef1be7f2a539f2968b23a1aa2aea8d")]
