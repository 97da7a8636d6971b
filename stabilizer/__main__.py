from stabilizer.cli import main

raise SystemExit(main())
