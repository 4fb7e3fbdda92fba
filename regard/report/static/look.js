// The page of a model's attention.

import { data } from "./dom.js";
import { begin } from "./language.js";
import { LookPage } from "./look-page.js";

new LookPage(data.sides);
begin();
