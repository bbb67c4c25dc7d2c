import sys

from prowess.cli.main import main

sys.exit(main())
