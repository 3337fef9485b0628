import { fileURLToPath } from "node:url";

import { defineConfig } from "eslint/config";
import tseslint from "typescript-eslint";

export default defineConfig(
  { ignores: ["dist/", "target/", "**/node_modules/", "**/generated/"] },
  {
    files: ["src/**/*.ts", "test/**/*.ts"],
    extends: [tseslint.configs.strictTypeChecked, tseslint.configs.stylisticTypeChecked],
    rules: {
      // Demands `!`, which the strict rules forbid.
      "@typescript-eslint/non-nullable-type-assertion-style": "off",
    },
    languageOptions: {
      parserOptions: { projectService: true, tsconfigRootDir: fileURLToPath(new URL(".", import.meta.url)) },
    },
  },
  {
    files: ["test/**/*.ts"],
    rules: {
      // The runner awaits its tests.
      "@typescript-eslint/no-floating-promises": [
        "error",
        { allowForKnownSafeCalls: [{ from: "package", package: "node:test", name: ["test", "describe", "it"] }] },
      ],
    },
  },
  {
    files: ["**/*.mjs"],
    extends: [tseslint.configs.recommended],
  },
);
