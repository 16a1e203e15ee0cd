"""From the server's rows to addresses."""

from rollout.domain.world import DeploymentView, InstanceView
from rollout.sources.prompts import prompt_of
from rollout.sources.refs import InstanceRef, refs_of


def view(*instances, backend="vLLM"):
    return DeploymentView(7, "m-a", 1, 1, "running", {"backend": backend} if backend else {}, tuple(instances))


def inst(ident, state="running"):
    return InstanceView(ident, f"m-a-{ident}", state, "spark-01")


ROWS = [
    {
        "name": "spark-01",
        "ip": "10.0.0.1",
        "metrics_port": 10151,
        "instances": [{"id": 3, "worker_ip": "10.0.0.9", "port": 40001}, {"id": 4, "ports": [40002]}],
    },
    {"name": "spark-02", "ip": "10.0.0.2", "metrics_port": 10151},
]


def test_the_instance_row_names_the_host_and_the_worker_row_fills_in():
    refs = refs_of({"m-a": view(inst(3), inst(4))}, ROWS)["m-a"]
    assert (refs.backend, refs.model_id) == ("vLLM", 7)
    assert refs.instances == (InstanceRef(3, "m-a-3", "10.0.0.9", 10151, 40001), InstanceRef(4, "m-a-4", "10.0.0.1", 10151, 40002))


def test_an_unreachable_instance_stays_and_one_that_never_served_does_not():
    refs = refs_of({"m-a": view(inst(3, "unreachable"), inst(4, "starting"))}, ROWS)["m-a"]
    assert [i.id for i in refs.instances] == [3]


def test_an_instance_on_no_known_worker_keeps_no_address():
    assert refs_of({"m-a": view(inst(99), backend=None)}, ROWS)["m-a"].instances == (InstanceRef(99, "m-a-99", None, None, None),)


def test_prompts_have_the_wanted_length_and_differ_from_the_first_words_on():
    prompts = [prompt_of(256, f"256x4:{i}") for i in range(50)]
    assert all(len(p.split()) == 256 and len(p) == 256 * 4 - 1 for p in prompts)
    assert len({p[:40] for p in prompts}) == 50
    assert prompts[0] == prompt_of(256, "256x4:0")
