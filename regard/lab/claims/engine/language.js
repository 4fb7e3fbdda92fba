(function () {
  var root = document.documentElement, button = document.getElementById("language"), held = null;
  function speak(language) {
    root.lang = language;
    button.textContent = language === "zh" ? "English" : "中文";
    button.lang = language === "zh" ? "en" : "zh";
  }
  try { held = localStorage.getItem("regard-language"); } catch (error) { held = null; }
  speak(held === "zh" || held === "en" ? held : /^zh/i.test(navigator.language) ? "zh" : "en");
  button.addEventListener("click", function () {
    speak(root.lang === "zh" ? "en" : "zh");
    try { localStorage.setItem("regard-language", root.lang); } catch (error) { held = null; }
  });
})();
