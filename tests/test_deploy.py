"""The files of examples/deploy: what they say agrees, and what they start works."""

from __future__ import annotations

import importlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest
import yaml

import hosts
import postgresbench
from deploybench import DEPLOY, PASSWORD, ROOT, Machine, compose, manifest, unit
from laneway import App
from workbench import DEADLINE, until

BIN = Path(sys.executable).parent
UNITS = ("shop-worker.service", "shop-dashboard.service")


def need(program: str, package: str) -> str:
    """Return a program's path, or skip the test."""
    found = shutil.which(program)
    if found is None:
        pytest.skip(f"no {program} here: apt-get install {package}")
    return found


def say(*command: str | Path) -> str:
    """Run a checker, and return what it says; it must find nothing wrong."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def option(command: Sequence[str], name: str) -> str:
    """Return the value of an option, as `--name value` or `--name=value`."""
    words = [word for part in command for word in part.split("=", 1)]
    return words[words.index(name) + 1]


# -- what they say -------------------------------------------------------------------------------------------------


def test_the_compose_file_fits_its_schema() -> None:
    say(BIN / "check-jsonschema", "--builtin-schema", "vendor.compose-spec", DEPLOY / "compose.yaml")


def test_the_dockerfile_passes_its_linter_and_its_command_is_no_shell() -> None:
    say(BIN / "hadolint", DEPLOY / "Dockerfile")
    (command,) = re.findall(r"^CMD (.+)$", (DEPLOY / "Dockerfile").read_text("utf-8"), re.MULTILINE)
    assert json.loads(command)[:2] == ["laneway", "worker"]


def test_the_image_copies_what_is_there_and_not_ignored() -> None:
    copied = re.findall(r"^COPY (?!--)(.+) \S+$", (DEPLOY / "Dockerfile").read_text("utf-8"), re.MULTILINE)
    names = {name for line in copied for name in line.split()}
    ignored = (DEPLOY / "Dockerfile.dockerignore").read_text("utf-8").split()
    assert names == {name.removeprefix("!") for name in ignored if name.startswith("!")}
    assert all((ROOT / name).exists() for name in names)


def manifests() -> Iterator[dict[str, Any]]:
    for path in sorted((DEPLOY / "kubernetes").glob("*.yaml")):
        yield from yaml.safe_load_all(path.read_text("utf-8"))


MODELS = {"apps/v1": "apps_v1", "batch/v1": "batch_v1", "policy/v1": "policy_v1", "v1": "core_v1"}


def without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_none(one) for key, one in value.items() if one is not None}
    return [without_none(one) for one in value] if isinstance(value, list) else value


def misfit(document: dict[str, Any]) -> object:
    """Say what of an object Kubernetes does not know; None: it knows all of it."""
    model = getattr(importlib.import_module(f"lightkube.models.{MODELS[document['apiVersion']]}"), document["kind"])
    try:
        understood = without_none(msgspec.to_builtins(msgspec.convert(document, model)))
    except msgspec.ValidationError as error:
        return str(error)
    return None if understood == document else understood


def test_the_manifests_fit_the_api_of_kubernetes() -> None:
    found = [one for one in manifests() if one["apiVersion"] in MODELS]
    assert len(found) == 9
    assert [misfit(one) for one in found if misfit(one) is not None] == []


def test_the_check_of_manifests_sees_a_wrong_word_and_a_wrong_value() -> None:
    worker = manifest("Deployment", "shop-worker")
    worker["spec"]["template"]["spec"]["containers"][0]["livenesProbe"] = {}
    assert misfit(worker) is not None
    budget = manifest("PodDisruptionBudget", "shop-worker")
    budget["spec"]["selector"] = "worker"
    assert "selector" in str(misfit(budget))


def test_a_stop_has_longer_than_the_jobs_have() -> None:
    service = compose()["services"]["worker"]
    pod = manifest("Deployment", "shop-worker")["spec"]["template"]["spec"]
    worker = unit("shop-worker.service")
    for command, grace in (
        (service["command"], int(service["stop_grace_period"].removesuffix("s"))),
        (pod["containers"][0]["command"], pod["terminationGracePeriodSeconds"]),
        (worker["ExecStart"].split(), int(worker["TimeoutStopSec"])),
    ):
        assert grace >= int(option(command, "--shutdown-timeout")) + 10
    assert "lifecycle" not in pod["containers"][0]
    assert (worker["Type"], worker["KillMode"]) == ("exec", "mixed")


def test_objects_of_the_manifests_find_each_other() -> None:
    labels = {
        one["metadata"]["name"]: one["spec"]["template"]["metadata"]["labels"]
        for one in manifests()
        if one["kind"] == "Deployment"
    }
    for one in manifests():
        if one["kind"] == "Service":
            assert one["spec"]["selector"] in labels.values()
        if one["kind"] == "PodDisruptionBudget":
            assert one["spec"]["selector"]["matchLabels"] == labels[one["metadata"]["name"]]
        if "template" in one.get("spec", {}):
            (container,) = one["spec"]["template"]["spec"]["containers"]
            assert container["envFrom"][0]["secretRef"]["name"] == "shop"
    worker = manifest("Deployment", "shop-worker")["spec"]["template"]["spec"]["containers"][0]
    scaled = manifest("ScaledObject", "shop-worker")["spec"]
    assert scaled["scaleTargetRef"]["name"] in labels
    slots = int(option(worker["command"], "--processes")) * int(option(worker["command"], "--slots"))
    assert float(scaled["triggers"][0]["metadata"]["threshold"]) == 0.8 * slots


def test_files_that_the_compose_file_mounts_are_there_and_grafana_finds_its_dashboard() -> None:
    services = compose()["services"]
    binds = {where: source for one in services.values() for source, where, *_ in
             (volume.split(":") for volume in one.get("volumes", ())) if source.startswith(".")}  # fmt: skip
    assert [source for source in binds.values() if not (DEPLOY / source).exists()] == []
    (provider,) = yaml.safe_load((DEPLOY / "grafana" / "dashboards.yml").read_text("utf-8"))["providers"]
    assert (DEPLOY / binds[provider["options"]["path"]] / "laneway.json").exists()
    (source,) = yaml.safe_load((DEPLOY / "grafana" / "datasource.yml").read_text("utf-8"))["datasources"]
    assert urllib.parse.urlsplit(source["url"]).hostname in services


ALERTS = [
    ("NoWorker", 'laneway_workers{phase="working"}', "0x20", True),
    ("NoWorker", 'laneway_workers{phase="working"}', "0 0 1 1x20", False),
    ("StoreAway", "laneway_up", "0x20", True),
    ("StoreAway", "laneway_up", "1x20", False),
    ("JobsWait", 'laneway_lag_seconds{queue="mail"}', "301x20", True),
    ("JobsWait", 'laneway_lag_seconds{queue="mail"}', "299x20", False),
    ("JobsDie", 'laneway_task_dead_total{task="charge"}', "0x5 1x20", True),
    ("JobsDie", 'laneway_task_dead_total{task="charge"}', "7x20", False),
]


def test_alerts_fire_when_they_should_and_not_for_a_paused_queue(tmp_path: Path) -> None:
    promtool = need("promtool", "prometheus")
    rules = yaml.safe_load((DEPLOY / "alerts.yml").read_text("utf-8"))["groups"][0]["rules"]
    told = {rule["alert"]: rule["annotations"]["summary"] for rule in rules}
    cases: list[dict[str, Any]] = []
    for paused in (0, 1):
        for alert, series, values, fires in ALERTS:
            both = [{"series": series, "values": values}, {"series": 'laneway_paused{queue="mail"}', "values": f"{paused}x20"}]
            fires = fires and not (paused and alert == "JobsWait")  # noqa: PLW2901
            labels = dict(re.findall(r'(queue|task)="(\w+)"', series))
            text = told[alert].replace("{{ $labels.queue }}", "mail").replace("{{ $labels.task }}", "charge")
            text = text.replace("{{ $value | humanizeDuration }}", "5m 1s")
            expected = [{"exp_labels": labels, "exp_annotations": {"summary": text}}] if fires else []
            check = {"eval_time": "15m", "alertname": alert, "exp_alerts": expected}
            cases.append({"interval": "1m", "input_series": both, "alert_rule_test": [check]})
    test = {"rule_files": [str(DEPLOY / "alerts.yml")], "evaluation_interval": "1m", "tests": cases}
    (tmp_path / "test.yml").write_text(yaml.safe_dump(test), encoding="utf-8")
    say(promtool, "test", "rules", tmp_path / "test.yml")


@pytest.mark.parametrize("name", UNITS)
def test_a_unit_passes_the_checks_of_systemd(name: str, tmp_path: Path) -> None:
    analyze = need("systemd-analyze", "systemd")
    text = (DEPLOY / "systemd" / name).read_text(encoding="utf-8")
    program = unit(name)["ExecStart"].split()[0]
    (tmp_path / name).write_text(text.replace(program, str(BIN / "laneway")), encoding="utf-8")
    assert say(analyze, "verify", "--man=no", tmp_path / name) == ""
    say(analyze, "security", "--offline=yes", "--threshold=20", "--no-pager", tmp_path / name)


# -- what they start -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """A machine with the Redis of the compose file."""
    hosts.need_hosts()
    made = Machine(tmp_path_factory.mktemp("machine"))
    try:
        made.start_redis()
        yield made
    finally:
        made.close()


def ask(url: str, method: str = "GET", **headers: str) -> tuple[int, str]:
    """Return status and body; 0 if nobody answers."""
    request = urllib.request.Request(url, method=method, headers=headers)  # noqa: S310 - ours
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError:
        return 0, ""


def prometheus_of(machine: Machine) -> list[str]:
    """Return the command of Prometheus, with its files where they are here; it scrapes each second."""
    config = (DEPLOY / "prometheus.yml").read_text("utf-8").replace("15s", "1s").replace("/run/secrets", str(machine.folder))
    (machine.folder / "prometheus.yml").write_text(config, encoding="utf-8")
    (machine.folder / "token").write_text(PASSWORD, encoding="utf-8")
    shutil.copy(DEPLOY / "alerts.yml", machine.folder)
    say(need("promtool", "prometheus"), "check", "config", machine.folder / "prometheus.yml")
    places = {"=/etc/prometheus": f"={machine.folder}", "=/prometheus": f"={machine.folder}/prometheus"}
    command = ["prometheus", *compose()["services"]["prometheus"]["command"]]
    for there, here in places.items():
        command = [one.replace(there, here) for one in command]
    return command


def test_the_services_of_the_compose_file_work_together(machine: Machine) -> None:
    services = compose()["services"]
    done = machine.run(services["migrate"]["command"], services["migrate"]["environment"])
    assert done.returncode == 0, done.stderr
    web, worker, dashboard = (
        machine.start(name, services[name]["command"], services[name]["environment"]) for name in ("web", "worker", "dashboard")
    )
    if shutil.which("prometheus"):
        machine.start("prometheus", prometheus_of(machine), {})
    shop, board = (f"http://{machine.address}:{port}" for port in (8000, 8080))
    until(lambda: ask(f"{shop}/openapi.json")[0] == 200, "the web program")
    until(lambda: ask(f"{board}/healthz")[0] == 200, "the dashboard")
    id_ = json.loads(ask(f"{shop}/charges?customer=7&cents=450", "POST")[1])["id"]
    until(lambda: json.loads(ask(f"{shop}/charges/{id_}")[1])["state"] == "done", "the charge")
    until(lambda: machine.run(services["worker"]["healthcheck"]["test"][1:], {}).returncode == 0, "a healthy worker")
    assert ask(f"{board}/metrics")[0] == 401
    status, metrics = ask(f"{board}/metrics", Authorization=f"Bearer {PASSWORD}")
    assert (status, "laneway_up 1" in metrics) == (200, True)
    assert worker.stop(signal.SIGTERM) == 0
    assert all(json.loads(line) for line in worker.said().splitlines() if line)
    os.kill(web.pid, signal.SIGTERM)
    web.process.wait(DEADLINE)

    with closing(App(machine.redis)) as app:
        scales_by_what_prometheus_says(machine, app)
    assert dashboard.stop(signal.SIGTERM) == 0


def scales_by_what_prometheus_says(machine: Machine, app: App) -> None:
    """Ask a real Prometheus, which scrapes the dashboard, what KEDA would ask."""
    need("prometheus", "prometheus")
    busy, lag = (one["metadata"]["query"] for one in manifest("ScaledObject", "shop-worker")["spec"]["triggers"])

    def value(query: str) -> float | None:
        status, answer = ask(f"http://{machine.address}:9090/api/v1/query?query={urllib.parse.quote(query)}")
        found = json.loads(answer)["data"]["result"] if status == 200 else []
        assert len(found) <= 1, "KEDA takes one number"
        return float(found[0]["value"][1]) if found else None

    until(lambda: value(busy) == 0, "a scrape")
    app.enqueue("shop.slow", 0.0)
    until(lambda: (value(lag) or 0) > 0, "the lag of a job that no worker claims")
    app.inspect.pause("default")
    until(lambda: value(lag) == 0, "no lag, since its queue is paused")


def test_a_worker_is_the_first_process_of_a_pod(machine: Machine) -> None:
    """It answers probes, buries orphans, and ends within its time when the pod is stopped; a job that runs then is done."""
    if why := postgresbench.why_not():
        pytest.skip(why)
    store = {"LANEWAY_URL": postgresbench.emptied().socket_url}
    (migrate,) = manifest("Job", "shop-migrate")["spec"]["template"]["spec"]["containers"]
    done = machine.run(migrate["command"], store)
    assert done.returncode == 0, done.stderr
    pod = manifest("Deployment", "shop-worker")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    worker = machine.start("pod", container["command"], store, "unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
    (port,) = (one["containerPort"] for one in container["ports"] if one["name"] == "health")
    assert container["livenessProbe"]["httpGet"]["port"] == container["readinessProbe"]["httpGet"]["port"] == "health"

    def probe(name: str) -> int:
        return ask(f"http://{machine.address}:{port}{container[name]['httpGet']['path']}")[0]

    until(lambda: probe("livenessProbe") == 200 or worker.process.poll() is not None, "life")
    until(lambda: probe("readinessProbe") == 200 or worker.process.poll() is not None, worker.said())
    assert Path("/proc", str(worker.pid), "status").read_text().split("NSpid:")[1].splitlines()[0].split()[-1] == "1"

    with closing(App(store["LANEWAY_URL"])) as app:
        app.enqueue("shop.leave_behind", "0.5")

        def orphans() -> list[int]:
            found: list[int] = []
            for one in psutil.Process(worker.pid).children():
                with suppress(psutil.NoSuchProcess):  # it was just buried
                    if one.name() == "sleep" or one.status() == psutil.STATUS_ZOMBIE:
                        found.append(one.pid)
            return found

        until(orphans, "an orphan, whose new parent is the worker's supervisor")
        until(lambda: not orphans(), "its burial")
        until(lambda: app.stats.totals()["processed"] == 1, "the end of the job that left it behind")
        app.enqueue("shop.slow", 1.0)
        until(lambda: app.inspect.counts()["scheduled"] == 1, "the start of the slow job")
        assert worker.stop(signal.SIGTERM) == 0
        assert app.stats.totals()["processed"] == 2
        assert sum(app.inspect.counts().values()) == 1
