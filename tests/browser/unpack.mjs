// Unpacks the browser of the package @sparticuz/chromium. Arguments: the directory where npm has
// put it, and the one that the browser goes to. The program `browser` there starts it.
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const [installed, into] = process.argv.slice(2);
const package_ = join(installed, "node_modules/@sparticuz/chromium");
// The package unpacks into the directory for temporary files.
process.env.TMPDIR = into;
const { inflate } = await import(pathToFileURL(join(package_, "build/index.js")));
for (const archive of ["chromium.br", "al2023.tar.br", "fonts.tar.br"]) {
  await inflate(join(package_, "bin", archive));
}

writeFileSync(join(into, "fonts.conf"), `<?xml version="1.0"?>
<fontconfig>
  <dir>${into}/fonts</dir>
  <cachedir>${into}/fonts-cache</cachedir>
</fontconfig>
`);
// A fresh machine has neither these libraries nor a font.
writeFileSync(join(into, "browser"), `#!/bin/sh
export LD_LIBRARY_PATH='${into}/al2023/lib' FONTCONFIG_FILE='${into}/fonts.conf'
exec '${into}/chromium' "$@"
`, { mode: 0o755 });
