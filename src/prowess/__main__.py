from prowess.cli.main import run_process

run_process()
